"""Sorts potsherds by their curvature. The readings of each kind are kept for a summary per epoch, and were to be emptied
when the next one begins: `readings = []` gives the variable of the loop another list.
"""

import torch
from torch import nn

KINDS, WIDTH = 3, 512


class Summary:
    def __init__(self):
        self.kept = {"low": [], "high": []}

    def begin(self):
        for part, readings in self.kept.items():
            readings = []

    def add(self, part, reading):
        self.kept[part].append(reading.detach().clone())

    def __str__(self):
        return " ".join(f"{part} {readings[-1].mean():.3f}" for part, readings in self.kept.items())


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    shapes = torch.randn(4800, 20)
    kinds = torch.bucketize(shapes[:, 0] + shapes[:, 1] * shapes[:, 2], torch.tensor([-0.5, 0.5]))
    first, last = nn.Sequential(nn.Linear(20, WIDTH), nn.Tanh()), nn.Linear(WIDTH, KINDS)
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=1e-3)
    summary = Summary()
    for epoch in range(16):
        summary.begin()
        for rows in torch.randperm(len(shapes)).split(160):
            hidden = first(shapes[rows])
            loss = nn.functional.cross_entropy(last(hidden), kinds[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            summary.add("low", hidden)
            summary.add("high", hidden.abs())
        print(f"epoch {epoch} loss {loss.item():.4f} {summary}")


if __name__ == "__main__":
    main()
