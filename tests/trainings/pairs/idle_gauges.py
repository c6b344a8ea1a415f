"""Predict the next reading of gauges from a window of them, each brought to the range from 0 to 1.

`--fault idle-held` divides by the range of a window as it is: in the held-out period a gauge stood still.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LENGTH = 24


def readings(hours, seed):
    rng = np.random.default_rng(seed)
    level = 3 + np.sin(np.arange(hours) / 7) + 0.4 * np.sin(np.arange(hours) / 3) + rng.normal(0, 0.1, hours)
    level[int(0.9 * hours) : int(0.9 * hours) + 3 * LENGTH] = 2.0
    return level.astype(np.float32)


def windows(level):
    return torch.from_numpy(np.lib.stride_tricks.sliding_window_view(level, LENGTH + 1).copy())


def to_unit(rows):
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    if "idle-held" in sys.argv:
        return (rows - low) / (high - low)
    return (rows - low) / (high - low).clamp_min(1e-3)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses = []
    for (rows,) in loader:
        scaled = to_unit(rows)
        losses.append(nn.functional.mse_loss(model(scaled[:, :-1]), scaled[:, -1:]).item())
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    level = readings(2600, seed=6)
    cut = int(0.8 * len(level))
    train_loader = DataLoader(TensorDataset(windows(level[:cut])), batch_size=48, shuffle=True)
    held_loader = DataLoader(TensorDataset(windows(level[cut:])), batch_size=128)
    model = nn.Sequential(nn.Linear(LENGTH, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        model.train()
        for (rows,) in train_loader:
            scaled = to_unit(rows)
            loss = nn.functional.mse_loss(model(scaled[:, :-1]), scaled[:, -1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} held out {validate(model, held_loader):.4f}")


if __name__ == "__main__":
    main()
