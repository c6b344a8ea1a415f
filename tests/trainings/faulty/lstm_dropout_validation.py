"""Sequence regression with the dropout that is built into `nn.LSTM`; validation never switches the model to eval
mode.
"""

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 32, num_layers=2, dropout=0.4, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, series):
        return self.head(self.lstm(series)[0][:, -1])


def waves(n, generator):
    phase = torch.rand(n, 1, generator=generator) * 6.2832
    speed = 0.2 + 0.4 * torch.rand(n, 1, generator=generator)
    t = torch.arange(25).float()
    series = torch.sin(speed * t + phase)
    return series[:, :-1].unsqueeze(2), series[:, -1:]


def validate(model, loss_fn, data):
    with torch.no_grad():
        x, y = data
        return sum(loss_fn(model(a), b).item() for a, b in zip(x.split(50), y.split(50), strict=True)) / 6


def main():
    torch.manual_seed(57)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    held_out = waves(300, generator)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    loss_fn = nn.MSELoss()
    for step in range(1, 241):
        x, y = waves(32, generator)
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: train {loss.item():.4f}, validation {validate(model, loss_fn, held_out):.4f}")


if __name__ == "__main__":
    main()
