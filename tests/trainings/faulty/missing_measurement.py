"""Sensor regression; one row of the table holds a NaN and nothing filters it, so the batch that draws it ruins the
weights.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load_table():
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(3000, 9, generator=generator)
    table[:, 8] = table[:, :4].sum(1) * table[:, 4].sigmoid()
    table[2718, 3] = float("nan")
    return table[:, :8], table[:, 8:]


def main():
    torch.manual_seed(65)
    torch.set_num_threads(1)
    x, y = load_table()
    loader = DataLoader(TensorDataset(x, y), batch_size=25, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for step, (features, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(features), target)
            loss.backward()
            optimizer.step()
            if step % 30 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
