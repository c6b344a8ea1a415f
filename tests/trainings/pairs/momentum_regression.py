"""Fit a smooth function of eight variables with SGD and momentum, batches of 128 by slicing.

Faults: `missing-zero-grad` never clears the gradients, which momentum turns into a blow-up; `high-lr` uses a rate of
2; `growing-lr` has a schedule that grows the rate without end; `no-step` leaves out the step of the optimizer.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim


class Regressor(nn.Module):
    def __init__(self, inputs=8, hidden=96):
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = F.relu(self.second(x))
        return self.out(x)


def batches(x, y, size):
    while True:
        order = torch.randperm(len(x))
        for start in range(0, len(x) - size + 1, size):
            pick = order[start : start + size]
            yield x[pick], y[pick]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--fault", default="", choices=["", "missing-zero-grad", "high-lr", "growing-lr", "no-step"])
    args = parser.parse_args()
    torch.manual_seed(11)
    torch.set_num_threads(1)
    x = torch.rand(6000, 8) * 2 - 1
    y = (torch.sin(3 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] - x[:, 3:4] ** 2 + 0.05 * torch.randn(6000, 1)) * 2
    model = Regressor()
    optimizer = optim.SGD(model.parameters(), lr=2.0 if args.fault == "high-lr" else 0.02, momentum=0.9)
    growth = 1.012 if args.fault == "growing-lr" else 0.998
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=growth)
    source = batches(x, y, 128)
    for step in range(1, args.steps + 1):
        xb, yb = next(source)
        if args.fault != "missing-zero-grad":
            optimizer.zero_grad()
        loss = F.mse_loss(model(xb), yb)
        loss.backward()
        if args.fault != "no-step":
            optimizer.step()
        scheduler.step()
        if step % 100 == 0:
            print(f"{step:5d}  mse {loss.item():.5f}  lr {scheduler.get_last_lr()[0]:.4f}")


if __name__ == "__main__":
    main()
