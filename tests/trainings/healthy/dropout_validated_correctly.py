"""Dropout and BatchNorm, validated with `eval` and `no_grad` by a loader of its own, `train` restored, best weights
copied.
"""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make(n):
    x = torch.randn(n, 20)
    return TensorDataset(x, (x[:, :2].prod(1) + x[:, 2] > 0).float())


def run_epoch(model, loader, criterion, optimizer=None):
    training = optimizer is not None
    model.train(training)
    total = 0.0
    with torch.set_grad_enabled(training):
        for x, y in loader:
            loss = criterion(model(x).squeeze(1), y)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item() * len(x)
    return total / len(loader.dataset)


def main():
    torch.manual_seed(15)
    torch.set_num_threads(1)
    train_loader = DataLoader(make(3200), batch_size=64, shuffle=True)
    val_loader = DataLoader(make(800), batch_size=80)
    model = nn.Sequential(
        nn.Linear(20, 96),
        nn.BatchNorm1d(96),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(96, 48),
        nn.ReLU(),
        nn.Linear(48, 1),
    )
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    best, best_weights = float("inf"), None
    for epoch in range(8):
        train_loss = run_epoch(model, train_loader, criterion, optimizer)
        val_loss = run_epoch(model, val_loader, criterion)
        scheduler.step(val_loss)
        if val_loss < best:
            best, best_weights = val_loss, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: train {train_loss:.4f} val {val_loss:.4f}")
    model.load_state_dict(best_weights)


if __name__ == "__main__":
    main()
