"""Predict the load of a machine from its sensors, with a trainer that is a Module and batches from an index array.

Faults: `tiny-rate` writes 1e-7 where 1e-3 was meant; `huge-rate` gives Adam a rate of 1; `frozen-by-clip` clips gradients
of a summed loss, in the thousands, to a norm of 1e-3 under plain gradient descent.
"""

import argparse

import torch
from torch import nn


class Forecast(nn.Module):
    def __init__(self, rate, clip):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.head = nn.Linear(48, 1)
        self.criterion = nn.MSELoss(reduction="sum" if clip else "mean")
        self.clip = clip
        kind = torch.optim.SGD if clip else torch.optim.Adam
        self.optimizer = kind(self.parameters(), lr=rate)

    def forward(self, x):
        return self.head(self.body(x))

    def fit_batch(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self(x), y)
        loss.backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.parameters(), self.clip)
        self.optimizer.step()
        return loss.item() / len(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "tiny-rate", "huge-rate", "frozen-by-clip"])
    args = parser.parse_args()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    x = torch.randn(1500, 12)
    y = torch.tanh(x[:, :1] * x[:, 1:2]) + x[:, 2:5].clamp(-1, 1).sum(1, keepdim=True) + 0.1 * torch.randn(1500, 1)
    rate = {"tiny-rate": 1e-7, "huge-rate": 1.0, "frozen-by-clip": 1e-3}.get(args.fault, 2e-3)
    model = Forecast(rate, 1e-3 if args.fault == "frozen-by-clip" else None)
    for epoch in range(8):
        order = torch.randperm(len(x))
        losses = [model.fit_batch(x[pick], y[pick]) for pick in order.split(50)]
        print(f"{epoch}: {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
