"""A small convolutional encoder and a head with rates of their own, whose parameters are counted before they are handed
to the optimizer.

Fault: `used-up` keeps the encoder's parameters in a filter, which is empty once they have been counted.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 12, 5, padding=2), nn.Tanh(), nn.Conv1d(12, 12, 5, padding=2), nn.Tanh()
        )
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.encoder(x).mean(-1))


def build_optimizer(model, rate, fault):
    slow = filter(lambda p: p.requires_grad, model.encoder.parameters())
    slow = slow if fault == "used-up" else list(slow)
    print("encoder:", sum(p.numel() for p in slow), "head:", sum(p.numel() for p in model.head.parameters()))
    return torch.optim.AdamW([{"params": slow, "lr": rate}, {"params": model.head.parameters(), "lr": 3 * rate}])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "used-up"])
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    labels = torch.randint(0, 3, (600,))
    phase = 6.28 * torch.rand(600, 1)
    waves = torch.sin(torch.arange(40) * (0.3 + 0.4 * labels[:, None]) + phase) + 0.3 * torch.randn(600, 40)
    model = Reader()
    optimizer = build_optimizer(model, 3e-3, args.fault)
    for epoch in range(12):
        for rows in torch.randperm(600).split(30):
            loss = F.cross_entropy(model(waves[rows, None]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
