"""Tell which of four quadrants two products of sensors fall into. The settings stand in a dataclass, one of them far too
high for Adam; `--rate` sets it from outside, and the dataclass is then not what to change."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    hidden: int = 64
    epochs: int = 12
    rate: float = 1.0
    batch: int = 100


class Quadrants(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.first, self.second = nn.Linear(8, hidden), nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 4)

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float)
    given = parser.parse_args()
    settings = Settings()
    if given.rate is not None:
        settings.rate = given.rate
    torch.manual_seed(8)
    torch.set_num_threads(1)
    model = Quadrants(settings.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.rate)
    x = torch.randn(4000, 8)
    quadrant = 2 * (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] * x[:, 3] > 0).long()
    for epoch in range(settings.epochs):
        order = torch.randperm(len(x))
        for pick in order.split(settings.batch):
            loss = F.cross_entropy(model(x[pick]), quadrant[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
