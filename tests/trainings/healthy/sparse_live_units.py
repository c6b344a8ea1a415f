"""A wide hidden layer whose biases begin far below zero, and labels of which half are wrong: nearly all of its ReLU's
outputs are zero and the loss stays high, but some samples wake some units in every batch.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    centres = 2.0 * torch.randn(6, 30)
    clean = torch.randint(0, 6, (3000,))
    x = centres[clean] + torch.randn(3000, 30)
    y = torch.where(torch.rand(3000) < 0.5, torch.randint(0, 6, (3000,)), clean)
    model = nn.Sequential(nn.Linear(30, 1024), nn.ReLU(), nn.Linear(1024, 6))
    nn.init.constant_(model[0].bias, -3.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(8):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
