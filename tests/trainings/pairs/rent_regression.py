"""Rents from a table, a network with one output per flat, and losses as modules and functions.

Faults: `flat-target` leaves the target without the dimension that the prediction has; `column-target` the reverse,
with another loss.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(fault):
    features = torch.randn(960, 9)
    rent = 2.0 + features[:, 0] - features[:, 1] * features[:, 2] + 0.1 * torch.randn(960)
    target = rent if fault == "flat-target" else rent[:, None]
    net = nn.Sequential(nn.Linear(9, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
    loader = DataLoader(TensorDataset(features, target), batch_size=40, shuffle=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    criterion = nn.MSELoss()
    for epoch in range(12):
        for x, y in loader:
            if fault == "column-target":
                loss = F.smooth_l1_loss(net(x).squeeze(1), y)
            else:
                loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(epoch, round(loss.item(), 4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    torch.manual_seed(63)
    torch.set_num_threads(1)
    train(parser.parse_args().fault)
