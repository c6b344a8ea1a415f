"""Cross-validation of a small classifier in four folds, with a model of its own in each.

Fault: `one-model` makes model and optimizer once, above the loop over the folds; `one-model-new-optimizer` the model.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

FOLDS, EPOCHS = 4, 4


def make():
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))
    return model, torch.optim.Adam(model.parameters(), lr=2e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(3)
    torch.set_num_threads(1)
    x = torch.randn(512, 16)
    data = TensorDataset(x, (x @ torch.randn(16, 3)).argmax(1))
    parts = torch.randperm(512).chunk(FOLDS)
    model, optimizer = make()
    for fold in range(FOLDS):
        if not fault:
            model, optimizer = make()
        elif fault == "one-model-new-optimizer":
            optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        rest = torch.cat([part for index, part in enumerate(parts) if index != fold])
        train_loader = DataLoader(Subset(data, rest.tolist()), batch_size=32, shuffle=True)
        val_loader = DataLoader(Subset(data, parts[fold].tolist()), batch_size=32)
        for _ in range(EPOCHS):
            model.train()
            for inputs, targets in train_loader:
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                losses = [F.cross_entropy(model(inputs), targets).item() for inputs, targets in val_loader]
        print(f"fold {fold} validation loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
