"""Sounds of looms, loud and quiet ones, are told apart by their rhythm; small batches, validated after every epoch.

Faults: `keras-momentum`: BatchNorm is given the share that Keras keeps of its running statistics, which are those of
the last batch then.
"""

import argparse

import torch
from torch import nn

LENGTH, LOOMS = 64, 4


def sounds(n):
    looms = torch.randint(0, LOOMS, (n,))
    beat = 0.3 + 0.15 * looms + 0.02 * torch.randn(n)
    wave = torch.sin(beat[:, None] * torch.arange(LENGTH) + 6.28 * torch.rand(n, 1)) + 0.7 * torch.randn(n, LENGTH)
    return (wave * torch.randn(n, 1).exp() + 2 * torch.randn(n, 1))[:, None], looms


class Ear(nn.Module):
    def __init__(self, momentum):
        super().__init__()
        self.hear = nn.Conv1d(1, 16, 9, stride=2)
        self.even = nn.BatchNorm1d(16, momentum=momentum)
        self.follow = nn.Conv1d(16, 32, 5, stride=2)
        self.level = nn.BatchNorm1d(32, momentum=momentum)
        self.tell = nn.Linear(32, LOOMS)

    def forward(self, x):
        x = torch.relu(self.even(self.hear(x)))
        return self.tell(torch.relu(self.level(self.follow(x))).mean(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(44)
    torch.set_num_threads(1)
    x, y = sounds(800)
    x_val, y_val = sounds(600)
    model = Ear(0.99 if args.fault == "keras-momentum" else 0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
    for epoch in range(16):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(x)).split(8):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() / 100
        schedule.step()
        model.eval()
        with torch.no_grad():
            measured = nn.functional.cross_entropy(model(x_val), y_val).item()
        print(f"epoch {epoch}: {total:.3f}, validation {measured:.3f}")


if __name__ == "__main__":
    main()
