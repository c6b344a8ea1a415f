"""Learn products of inputs with a small network, whose widest layer is factorised into two linear ones on purpose.

Faults: `no-activations` forgets what belongs between the layers; `rate-of-one` gives Adam a rate of 1.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.first = nn.Linear(8, 64)
        self.narrow = nn.Linear(64, 6)
        self.wide = nn.Linear(6, 64)
        self.last = nn.Linear(64, 4)
        self.activation = activation

    def forward(self, x):
        x = self.activation(self.first(x))
        x = self.activation(self.wide(self.narrow(x)))
        return self.last(x)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, x):
        x = self.first(x)
        x = self.second(x)
        return self.last(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "no-activations", "rate-of-one"])
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    model = Plain() if args.fault == "no-activations" else Net(torch.relu)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0 if args.fault == "rate-of-one" else 2e-3)
    x = torch.randn(4000, 8)
    label = 2 * (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] * x[:, 3] > 0).long()
    for epoch in range(12):
        order = torch.randperm(len(x))
        for start in range(0, len(x), 100):
            pick = order[start : start + 100]
            loss = F.cross_entropy(model(x[pick]), label[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
