"""Fine-tune a trunk at a tenth of the rate of its new head, with one cycle of warm-up and decay for both.

Fault: `one-peak` gives the schedule a single peak, which is then the peak of both groups.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "one-peak"])
    args = parser.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    trunk = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    head = nn.Linear(64, 5)
    points, centers = torch.randn(1600, 20), torch.randn(5, 20)
    labels = (points @ centers.T + 0.5 * torch.randn(1600, 5)).argmax(1)
    groups = [{"params": trunk.parameters(), "lr": 1e-4}, {"params": head.parameters(), "lr": 3e-3}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    steps = 250
    peak = 3e-3 if args.fault == "one-peak" else [group["lr"] for group in optimizer.param_groups]
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=peak, total_steps=steps)
    for step in range(steps):
        rows = torch.randint(0, 1600, (32,))
        loss = F.cross_entropy(head(trunk(points[rows])), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
