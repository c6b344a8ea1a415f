"""Trains on batches of two workers that are started by the method of the first argument."""

import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Drawn(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.randn(4) + sum(random.random() for _ in range(2_000)), index % 2


def seeded(worker):
    random.seed(worker)


def main():
    loader = DataLoader(
        Drawn(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1], worker_init_fn=seeded
    )
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(2):
        batches = iter(loader)
        assert loader.worker_init_fn is batches._worker_init_fn is seeded
        for inputs, targets in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
