"""Two faults: validation without `eval()` on a network with BatchNorm, and a crash in epoch 4 at a batch of one row."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loaders(epoch):
    rows = 1200 + (1 if epoch == 4 else 0)
    x = torch.randn(rows, 10)
    y = (x[:, :3].prod(1) > 0).long()
    x_val = torch.randn(400, 10)
    y_val = (x_val[:, :3].prod(1) > 0).long()
    return DataLoader(TensorDataset(x, y), 48, shuffle=True), DataLoader(TensorDataset(x_val, y_val), 100)


def main():
    torch.manual_seed(95)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(7):
        train_loader, val_loader = loaders(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            hits = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
        print(f"epoch {epoch}: loss {loss.item():.4f}, validation accuracy {hits / 400:.3f}")


if __name__ == "__main__":
    main()
