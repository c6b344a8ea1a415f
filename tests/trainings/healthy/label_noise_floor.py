"""Forty percent of the labels are random, so the loss falls early and then stays at the floor that the noise sets."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def main():
    parser = argparse.ArgumentParser(description="training with label noise")
    parser.add_argument("--noise", type=float, default=0.4)
    parser.add_argument("--steps", type=int, default=700)
    args = parser.parse_args()
    torch.manual_seed(25)
    torch.set_num_threads(1)
    w = torch.randn(16, 3)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=200, gamma=0.5)
    for step in range(args.steps):
        x = torch.randn(128, 16)
        clean = (x @ w).argmax(1)
        y = torch.where(torch.rand(128) < args.noise, torch.randint(0, 3, (128,)), clean)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 100 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
