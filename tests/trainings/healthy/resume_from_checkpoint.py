"""Trains, saves model, optimizer and scheduler, builds everything anew, loads it and goes on where it stopped."""

import pathlib
import tempfile

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=500)
    return model, optimizer, scheduler


def save(path, step, *parts):
    names = ("model", "optimizer", "scheduler")
    torch.save({"step": step, **{n: p.state_dict() for n, p in zip(names, parts, strict=True)}}, path)


def load(path, *parts):
    state = torch.load(path)
    for name, part in zip(("model", "optimizer", "scheduler"), parts, strict=True):
        part.load_state_dict(state[name])
    return state["step"]


def train(model, optimizer, scheduler, first, last):
    for step in range(first, last):
        x = torch.randn(64, 6)
        y = (x[:, :1] * x[:, 1:2]).tanh() + x[:, 2:3]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


def main():
    torch.manual_seed(27)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "checkpoint.pt"
        parts = build()
        train(*parts, 0, 250)
        save(path, 250, *parts)
        parts = build()
        step = load(path, *parts)
        print(f"resumed at step {step}")
        train(*parts, step, 500)


if __name__ == "__main__":
    main()
