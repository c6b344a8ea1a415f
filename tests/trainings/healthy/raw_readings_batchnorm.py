"""Readings in their own units (hPa, degrees, metres): the model's first layer is a BatchNorm, made for that."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(85)
    torch.set_num_threads(1)
    units = torch.tensor([[1013.0, 15.0, 250.0, 180.0]]), torch.tensor([[9.0, 8.0, 210.0, 104.0]])
    plain = torch.randn(2000, 4)
    readings = units[0] + units[1] * plain
    rain = 800 + 300 * (plain[:, 0] * plain[:, 2] + plain[:, 3].sin())  # millimetres a year
    loader = DataLoader(TensorDataset(readings, rain), batch_size=50, shuffle=True)
    model = nn.Sequential(
        nn.BatchNorm1d(4), nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(8):
        for x, y in loader:
            loss = nn.functional.huber_loss(model(x).squeeze(1), (y - 800) / 300)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
