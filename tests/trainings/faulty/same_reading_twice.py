"""Siamese network for sensor readings. A pair may hold the same reading twice: its distance is 0, where the root has no
finite derivative, and the weights are NaN from the next step on. Nothing grows before.
"""

import torch
from torch import nn


def distance(left, right):
    squares = (left - right).pow(2).sum(dim=1)
    return torch.sqrt(squares)


def main():
    torch.manual_seed(31)
    torch.set_num_threads(1)
    centres = torch.randn(5, 12)
    kinds = torch.arange(5).repeat(200)
    readings = centres[kinds] + 0.4 * torch.randn(1000, 12)
    encoder = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 6))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    for step in range(1, 421):
        one = torch.randint(0, 1000, (24,))
        other = (one + torch.randint(1, 1000, (24,))) % 1000
        if step == 311:
            other[7] = one[7]
        same = (kinds[one] == kinds[other]).float()
        apart = distance(encoder(readings[one]), encoder(readings[other]))
        loss = (same * apart + (1 - same) * torch.relu(2 - apart)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 70 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
