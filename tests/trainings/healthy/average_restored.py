"""Goes on from a file after a restart, with its weights, its moments and the average of its weights."""

import copy
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)
torch.set_num_threads(1)
x = torch.randn(400, 8)
y = (x[:, 0] * x[:, 1] + 0.4 * torch.randn(400) > 0).long()


def build():
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return model, optimizer, copy.deepcopy(model).requires_grad_(False)


def train(path, last):
    model, optimizer, average = build()
    first = 0
    if os.path.exists(path):
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        average.load_state_dict(checkpoint["ema"])
        first = checkpoint["epoch"] + 1
    for epoch in range(first, last):
        model.train()
        for rows in torch.randperm(300).split(20):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.mul_(0.98).add_(fast.detach(), alpha=0.02)
        average.eval()
        with torch.no_grad():
            print(f"epoch {epoch} average's loss {F.cross_entropy(average(x[300:]), y[300:]).item():.4f}")
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "ema": average.state_dict()}
        torch.save({**states, "epoch": epoch}, path)


if __name__ == "__main__":
    file = os.path.join(tempfile.mkdtemp(), "last.pt")
    train(file, 5)
    train(file, 10)
