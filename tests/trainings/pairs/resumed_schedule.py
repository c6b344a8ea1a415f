"""Trains half of its epochs, makes everything anew as after a restart, goes on from the file, and tunes at a low rate.

`--fault schedule-lost`: the scheduler's state is not saved. `--fault optimizer-anew`: the optimizer is made once more
after its state was restored. `--fault counted-from-zero`: rates are computed from epochs that begin at 0 again.
"""

import math
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
EPOCHS = 12


def build():
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    cosine = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 + 0.5 * math.cos(math.pi * epoch / EPOCHS))
    return model, optimizer, None if FAULT == "counted-from-zero" else cosine


def epoch_of(model, optimizer, x, y):
    for rows in torch.randperm(320).split(20):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x[rows]).squeeze(1), y[rows])
        loss.backward()
        optimizer.step()
    return loss.item()


def train(path, x, y, last):
    model, optimizer, scheduler = build()
    first = 0
    if os.path.exists(path):
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        if "scheduler" in checkpoint:
            scheduler.load_state_dict(checkpoint["scheduler"])
        if FAULT != "counted-from-zero":
            first = checkpoint["epoch"] + 1
        if FAULT == "optimizer-anew":
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(first, last):
        print(f"epoch {epoch} loss {epoch_of(model, optimizer, x, y):.4f}")
        if scheduler is not None:
            scheduler.step()
        else:
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * (0.5 + 0.5 * math.cos(math.pi * (epoch + 1) / EPOCHS))
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        if FAULT == "":
            states["scheduler"] = scheduler.state_dict()
        torch.save(states, path)


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    x = torch.randn(320, 8)
    y = (x[:, 0] * x[:, 1]).tanh() + x[:, 2] + 0.1 * torch.randn(320)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    train(path, x, y, EPOCHS // 2)
    train(path, x, y, EPOCHS)
    if not FAULT:
        model = build()[0]
        model.load_state_dict(torch.load(path)["model"])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
        for _ in range(3):
            print(f"tuning loss {epoch_of(model, optimizer, x, y):.4f}")


if __name__ == "__main__":
    main()
