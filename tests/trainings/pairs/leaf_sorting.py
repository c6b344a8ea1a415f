"""Leaves of six species. The files lie sorted by species, so the loader shuffles them.

Faults: `in-file-order` forgets to; `sliced-in-file-order` takes slices of the data, without a loader. No fault:
`sliced`, which mixes them before each epoch.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = 6


class Leaves(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.species = torch.arange(count) * SPECIES // count
        centers = torch.randn(SPECIES, 20, generator=torch.Generator().manual_seed(3))
        self.shape = centers[self.species] + 1.5 * torch.randn(count, 20, generator=generator)

    def __len__(self):
        return len(self.species)

    def __getitem__(self, index):
        return self.shape[index], self.species[index]


def slices(data, mixed, size=32):
    order = torch.randperm(len(data)) if mixed else torch.arange(len(data))
    for part in order.split(size):
        yield data.shape[part], data.species[part]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(83)
    torch.set_num_threads(1)
    train_loader = DataLoader(Leaves(1920, 1), batch_size=32, shuffle=fault != "in-file-order")
    leaves = Leaves(1920, 1)
    validation = DataLoader(Leaves(384, 2), batch_size=64)
    net = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Dropout(0.1), nn.Linear(40, SPECIES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(8):
        net.train()
        for shape, species in slices(leaves, fault == "sliced") if fault.startswith("sliced") else train_loader:
            loss = criterion(net(shape), species)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(shape).argmax(1) == species).sum().item() for shape, species in validation)
        print(epoch, right / 384)


if __name__ == "__main__":
    main()
