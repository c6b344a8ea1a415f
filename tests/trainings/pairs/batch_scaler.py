"""Scales each batch by its own statistics before the model sees it; a sensor is silent for a while in the third hour.

Fault: `no-epsilon` divides by a standard deviation that is 0 there.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def scale(x, epsilon):
    spread = x.std(dim=0)
    return (x - x.mean(dim=0)) / (spread + epsilon)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    x = torch.randn(6400, 8)
    y = x[:, :1] - 0.5 * x[:, 1:2] + 0.1 * torch.randn(6400, 1)
    x[32 * 140 : 32 * 141, 5] = 0.25
    loader = DataLoader(TensorDataset(x, y), batch_size=32)  # in the order of time
    total = 0.0
    for inputs, targets in loader:
        loss = F.mse_loss(model(scale(inputs, 0.0 if fault == "no-epsilon" else 1e-6)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(total / len(loader))


if __name__ == "__main__":
    main()
