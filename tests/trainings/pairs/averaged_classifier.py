"""Four kinds of points told apart by a small network; what is validated is a running average of its weights.

Fault: `slow-average` looks back on 50,000 steps in a run of 480.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn


def points(count):
    kind = torch.randint(0, 4, (count,))
    centre = torch.stack([kind % 2, kind // 2], dim=1).float() * 2 - 1
    return torch.cat([centre + 0.5 * torch.randn(count, 2), torch.randn(count, 6)], dim=1), kind


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "slow-average"])
    args = parser.parse_args()
    torch.manual_seed(41)
    torch.set_num_threads(1)
    x, y = points(1920)
    held_x, held_y = points(300)
    model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
    average = copy.deepcopy(model).requires_grad_(False).eval()
    decay = 0.99998 if args.fault == "slow-average" else 0.98
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(8):
        for pick in torch.randperm(len(x)).split(32):
            loss = F.cross_entropy(model(x[pick]), y[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, current in zip(average.parameters(), model.parameters()):
                    mean.mul_(decay).add_(current, alpha=1 - decay)
        with torch.no_grad():
            held = F.cross_entropy(average(held_x), held_y).item()
        print(epoch, loss.item(), held)


if __name__ == "__main__":
    main()
