"""Digit-like classifier whose schedule multiplies the rate by 1.9 per epoch (meant: 0.9); the loss turns and climbs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prototypes(n):
    centers = torch.randn(10, 36)
    label = torch.randint(0, 10, (n,))
    return TensorDataset(centers[label] + 1.3 * torch.randn(n, 36), label)


def main():
    torch.manual_seed(81)
    torch.set_num_threads(1)
    loader = DataLoader(prototypes(1600), batch_size=40, shuffle=True)
    model = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=1.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(12):
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f} next lr {scheduler.get_last_lr()[0]:.4f}")


if __name__ == "__main__":
    main()
