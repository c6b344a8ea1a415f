"""Tabular classifier with BatchNorm; the loader drops the incomplete last batch, early stopping on validation loss.

Faults: `keep-last` keeps the last batch, which has a single row; `float64-input` reads the table in double
precision; `late-key` asks for a metric that only exists in the first epochs; `batches-of-two` has batches of two rows.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    x = torch.randn(2561, 12)
    y = ((x[:, 0] * x[:, 1] + x[:, 2] > 0) ^ (torch.rand(2561) < 0.05)).long()
    x_val = torch.randn(512, 12)
    y_val = (x_val[:, 0] * x_val[:, 1] + x_val[:, 2] > 0).long()
    if args.fault == "float64-input":
        x = x.double()
    size = 32
    if args.fault == "batches-of-two":
        x, y, size = x[:400], y[:400], 2
    loader = DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True, drop_last=args.fault != "keep-last")
    model = nn.Sequential(
        nn.Linear(12, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    best, patience, bad = float("inf"), 4, 0
    for epoch in range(10):
        model.train()
        metrics = {"train": 0.0}
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
            metrics["train"] += loss.item() / len(loader)
        model.eval()
        with torch.no_grad():
            metrics["val"] = criterion(model(x_val), y_val).item()
        if args.fault == "late-key" and epoch >= 3:
            metrics = {f"{name}_loss": value for name, value in metrics.items()}
        print(f"epoch {epoch} train {metrics['train']:.4f} val {metrics['val']:.4f}")
        if metrics["val"] < best - 1e-4:
            best, bad = metrics["val"], 0
        else:
            bad += 1
        if bad >= patience:
            print("early stopping")
            break


if __name__ == "__main__":
    main()
