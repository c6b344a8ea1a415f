"""Regression to positive prices with a ReLU as the last layer and a bias of -10 below it: no unit ever fires.
The wrong line is `nn.init.constant_(..., -10.0)`.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(83)
    torch.set_num_threads(1)
    x = torch.randn(2000, 14)
    y = x[:, :5].abs().sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 1), nn.ReLU())
    nn.init.constant_(model[2].bias, -10.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(8):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
            loss = nn.functional.mse_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
