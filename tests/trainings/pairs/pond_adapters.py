"""Layers that are fixed get low-rank corrections, as in LoRA. Fault: `both-zero` begins with two factors of zeros."""

import argparse

import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, base, rank, fault):
        super().__init__()
        self.base = base.requires_grad_(False)
        if fault == "both-zero":
            self.down = nn.Parameter(torch.zeros(rank, base.in_features))
            self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        else:
            self.down = nn.Parameter(0.1 * torch.randn(rank, base.in_features))
            self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    fault = parser.parse_args().fault
    torch.manual_seed(44)
    torch.set_num_threads(1)
    body = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1)).requires_grad_(False)
    model = nn.Sequential(Adapted(body[0], 4, fault), body[1], Adapted(body[2], 4, fault))
    shift = torch.randn(12, 1)
    held = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.Adam(held, lr=3e-3)
    for step in range(300):
        x = torch.randn(64, 12)
        y = torch.tanh(x @ shift / 3) + 0.1 * torch.randn(64, 1)
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
