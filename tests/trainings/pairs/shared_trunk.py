"""Two heads on a shared trunk, each part with an optimizer of its own; a running average of the trunk is validated.

Faults: `both-hold-trunk` gives the trunk to both optimizers; `stale-average` never updates the average.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 48), nn.ReLU())
        self.kind, self.size = nn.Linear(48, 3), nn.Linear(48, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.kind(h), self.size(h).squeeze(1)


def total(model, x, kind, size):
    scores, values = model(x)
    return F.cross_entropy(scores, kind) + F.mse_loss(values, size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "both-hold-trunk", "stale-average"])
    args = parser.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    model = Net()
    average = copy.deepcopy(model).requires_grad_(False).eval()
    trunk = list(model.trunk.parameters())
    first = torch.optim.Adam([*trunk, *model.kind.parameters()], lr=2e-3)
    both = trunk if args.fault == "both-hold-trunk" else []
    second = torch.optim.Adam([*both, *model.size.parameters()], lr=2e-3)
    x = torch.randn(2000, 10)
    kind, size = x[:, :3].argmax(1), x[:, 3] * x[:, 4].sign()
    for epoch in range(8):
        for pick in torch.randperm(1600).split(40):
            loss = total(model, x[pick], kind[pick], size[pick])
            first.zero_grad()
            second.zero_grad()
            loss.backward()
            first.step()
            second.step()
            if args.fault != "stale-average":
                with torch.no_grad():
                    for old, new in zip(average.parameters(), model.parameters()):
                        old.lerp_(new, 0.02)
        with torch.no_grad():
            held = sum(
                total(average, x[a : a + 100], kind[a : a + 100], size[a : a + 100]) for a in range(1600, 2000, 100)
            )
        print(epoch, loss.item(), held.item() / 4)


if __name__ == "__main__":
    main()
