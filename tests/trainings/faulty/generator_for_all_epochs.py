"""Shells are sorted by their spirals; a generator that adds noise to the batches is made once, before the epochs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def noisy(loader):
    for spirals, kinds in loader:
        yield spirals + 0.05 * torch.randn_like(spirals), kinds


def accuracy(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for spirals, kinds in loader:
            right += (model(spirals).argmax(1) == kinds).sum().item()
    return right / len(loader.dataset)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    spirals = torch.randn(1400, 12)
    kinds = (spirals @ torch.randn(12, 4)).argmax(1)
    train = DataLoader(TensorDataset(spirals[:1000], kinds[:1000]), batch_size=20, shuffle=True)
    held_out = DataLoader(TensorDataset(spirals[1000:], kinds[1000:]), batch_size=100)
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    batches = noisy(train)
    for epoch in range(8):
        model.train()
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), accuracy(model, held_out))


if __name__ == "__main__":
    main()
