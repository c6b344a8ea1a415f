"""Gradient accumulation with an inner loop over the chunks of a large batch; every chunk's loss is weighted by its
size.
"""

import torch
import torch.nn.functional as F
from torch import nn


def train(model, optimizer, steps, chunk):
    for step in range(steps):
        x = torch.randn(120, 16)
        y = torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]
        optimizer.zero_grad()
        total = 0.0
        for xc, yc in zip(x.split(chunk), y.split(chunk), strict=True):
            loss = F.mse_loss(model(xc), yc) * len(xc) / len(x)
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {total:.4f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    train(net, torch.optim.Adam(net.parameters(), lr=2e-3), steps=250, chunk=40)
