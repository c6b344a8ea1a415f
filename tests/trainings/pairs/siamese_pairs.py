"""Contrastive training of a siamese network: two forwards per step, one loss.

Faults: `sqrt-at-zero` takes the plain square root of the squared distance, whose slope at identical pairs is
infinite.
"""

import argparse

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.PReLU(), nn.Linear(64, 64), nn.PReLU(), nn.Linear(64, 8))

    def forward(self, x):
        return self.net(x)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=2.0, eps=1e-6):
        super().__init__()
        self.margin, self.eps = margin, eps

    def forward(self, a, b, same):
        distance = ((a - b).pow(2).sum(1) + self.eps).sqrt()
        return (same * distance.pow(2) + (1 - same) * (self.margin - distance).clamp(min=0).pow(2)).mean()


def draw_pairs(centers, size, step):
    first = torch.randint(0, len(centers), (size,))
    second = torch.where(torch.rand(size) < 0.5, first, torch.randint(0, len(centers), (size,)))
    a = centers[first] + 0.3 * torch.randn(size, 16)
    b = centers[second] + 0.3 * torch.randn(size, 16)
    if step % 50 == 49:
        b[0], second[0] = a[0], first[0]
    return a, b, (first == second).float()


parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="")
parser.add_argument("--steps", type=int, default=500)


def main(args):
    torch.manual_seed(8)
    torch.set_num_threads(1)
    centers = torch.randn(12, 16)
    tower = Tower()
    loss_fn = ContrastiveLoss(eps=0.0 if args.fault == "sqrt-at-zero" else 1e-6)
    optimizer = torch.optim.SGD(tower.parameters(), lr=0.02, momentum=0.8, nesterov=True)
    for step in range(args.steps):
        a, b, same = draw_pairs(centers, 64, step)
        optimizer.zero_grad()
        loss = loss_fn(tower(a), tower(b), same)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step=} loss={loss.item():.4f}")


if __name__ == "__main__":
    main(parser.parse_args())
