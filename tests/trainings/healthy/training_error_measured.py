"""Part of the training data is evaluated beside the validation data, each through a loader of its own, to see the gap."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split


def evaluate(model, criterion, loader):
    model.eval()
    with torch.no_grad():
        return sum(criterion(model(x), y).item() for x, y in loader) / len(loader)


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    x = torch.randn(1500, 20)
    y = (x[:, :4].sum(1) + 0.5 * torch.randn(1500) > 0).long()
    train, held_out = random_split(TensorDataset(x, y), [1200, 300])
    loader = DataLoader(train, batch_size=32, shuffle=True)
    seen = DataLoader(Subset(train, range(300)), batch_size=25)
    unseen = DataLoader(held_out, batch_size=25)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(10):
        model.train()
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
        gap = evaluate(model, criterion, unseen) - evaluate(model, criterion, seen)
        print(f"epoch {epoch}: loss {loss.item():.4f}, gap {gap:.4f}")


if __name__ == "__main__":
    main()
