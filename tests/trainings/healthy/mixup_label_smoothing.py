"""Mixup and label smoothing: soft targets, an inflated training loss, validation loss below it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mixup(x, y, alpha, classes):
    lam = torch.distributions.Beta(alpha, alpha).sample().item()
    order = torch.randperm(len(x))
    soft = F.one_hot(y, classes).float()
    return lam * x + (1 - lam) * x[order], lam * soft + (1 - lam) * soft[order]


def main():
    torch.manual_seed(34)
    torch.set_num_threads(1)
    centers = torch.randn(5, 20)
    y = torch.randint(0, 5, (3600,))
    x = centers[y] + torch.randn(3600, 20)
    train_loader = DataLoader(TensorDataset(x[:3000], y[:3000]), batch_size=50, shuffle=True, drop_last=True)
    val_loader = DataLoader(TensorDataset(x[3000:], y[3000:]), batch_size=200)
    model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[3, 5], gamma=0.2)
    for epoch in range(6):
        model.train()
        for xb, yb in train_loader:
            mixed, soft = mixup(xb, yb, 0.4, 5)
            loss = criterion(model(mixed), soft)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            val = sum(F.cross_entropy(model(a), b).item() for a, b in val_loader) / len(val_loader)
        print(f"epoch {epoch}: train {loss.item():.4f} val {val:.4f}")


if __name__ == "__main__":
    main()
