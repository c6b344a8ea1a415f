"""Measurements of beetles, kept class by class as they were taken; mini-batches are slices of the tensors.

Faults: `as-kept` forgets to mix them before the slices are cut.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def beetles(kinds=8, each=120, traits=14):
    centres = torch.randn(kinds, traits)
    kind = torch.arange(kinds).repeat_interleave(each)
    return centres[kind] + 0.9 * torch.randn(kinds * each, traits), kind


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    x, y = beetles()
    held_out = torch.zeros(len(x), dtype=torch.bool)
    held_out[torch.randperm(len(x))[:160]] = True
    x_val, y_val = x[held_out], y[held_out]
    x, y = x[~held_out], y[~held_out]
    model = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    for epoch in range(15):
        if args.fault != "as-kept":
            order = torch.randperm(len(x))
            x, y = x[order], y[order]
        model.train()
        for first in range(0, len(x), 50):
            xb, yb = x[first : first + 50], y[first : first + 50]
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(x_val).argmax(1) == y_val).float().mean().item()
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {right:.3f}")


if __name__ == "__main__":
    main()
