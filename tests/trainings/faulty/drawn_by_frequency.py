"""Faults of pumps are rare, and the sampler is to draw them more often: its weights are the shares of the classes, where
one over these would be right, so that hardly a fault is ever drawn."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def readings(count, centres):
    kinds = torch.multinomial(torch.tensor([0.85, 0.08, 0.07]), count, replacement=True)
    return TensorDataset(centres[kinds] + 1.2 * torch.randn(count, 12), kinds)


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    centres = 0.4 * torch.randn(3, 12)
    train, held = readings(3000, centres), readings(600, centres)
    kinds = train.tensors[1]
    shares = torch.bincount(kinds) / len(kinds)
    sampler = WeightedRandomSampler(shares[kinds], len(kinds))
    loader = DataLoader(train, batch_size=50, sampler=sampler)
    held_loader = DataLoader(held, batch_size=200)
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(6):
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses = [F.cross_entropy(net(x), y).item() for x, y in held_loader]
        print(f"epoch {epoch}: held out {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    main()
