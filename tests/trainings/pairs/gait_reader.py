"""Tell walking from running in short recordings of three sensors, with a small transformer over time.

Faults: `attends-samples` leaves out batch_first, so that attention runs over the samples of the batch; `view-for-permute`
reads the memory of [batch, time] as [time, batch] for a recurrence. (`among-samples` is no fault: a last layer attends
over the batch on purpose, to compare each recording with the others; nor is `centred`, which takes the mean of the batch
away. `own-dice` draws noise from a generator of its own, that nobody can put back.)
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TIME, SENSORS, WIDTH = 12, 3, 16


class Reader(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.enter = nn.Linear(SENSORS, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        if fault == "view-for-permute":
            self.over_time = nn.GRU(WIDTH, WIDTH)
        else:
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, batch_first=fault != "attends-samples")
            self.over_time = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.leave = nn.Linear(WIDTH, 2)

    def forward(self, x):
        h = self.norm(self.enter(x).transpose(1, 2)).transpose(1, 2)
        if self.fault == "view-for-permute":
            h = self.over_time(h.reshape(TIME, -1, WIDTH))[0].mean(0)
        else:
            h = self.over_time(h).mean(1)
        if self.fault == "among-samples":
            h = h + torch.softmax(h @ h.T / WIDTH**0.5, dim=1) @ h
        if self.fault == "centred":
            h = h - h.mean(0)
        if self.fault == "own-dice":
            dice = torch.Generator()
            dice.seed()
            h = h + 0.1 * torch.randn(h.shape, generator=dice)
        return self.leave(h)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    y = torch.randint(0, 2, (320,))
    t = torch.arange(TIME)[None, :, None]
    phase = 6.28 * torch.rand(320, 1, SENSORS)
    x = torch.sin(t * (0.6 + 0.9 * y)[:, None, None] + phase) + 0.3 * torch.randn(320, TIME, SENSORS)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = Reader(args.fault)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        for inputs, targets in loader:
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
