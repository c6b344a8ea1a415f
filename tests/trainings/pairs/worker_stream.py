"""A stream of lines read by two workers, each of which takes its own.

Faults: `whole-file`, each reads all of them; so does `asks-early`, which asks for the worker as the stream is made.
"""

import itertools
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WHOLE_FILE = sys.argv[-1] == "whole-file"


class Readings(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        worker = get_worker_info()
        with open(self.path) as lines:
            mine = lines if WHOLE_FILE else itertools.islice(lines, worker.id, None, worker.num_workers)
            for line in mine:
                *values, label = map(float, line.split())
                yield torch.tensor(values), int(label)


class Shared(IterableDataset):
    def __init__(self, path):
        self.path = path
        self.share()

    def share(self):
        worker = get_worker_info()
        self.first, self.every = (worker.id, worker.num_workers) if worker else (0, 1)

    def __iter__(self):
        with open(self.path) as lines:
            for line in itertools.islice(lines, self.first, None, self.every):
                *values, label = map(float, line.split())
                yield torch.tensor(values), int(label)


def write(path):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1800, 10, generator=generator)
    labels = (rows[:, 0] * rows[:, 1] > 0).long()
    path.write_text("".join(f"{' '.join(f'{v:.5f}' for v in row)} {y}\n" for row, y in zip(rows.tolist(), labels)))


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    path = Path(tempfile.mkdtemp()) / "readings.txt"
    write(path)
    stream = Shared(path) if sys.argv[-1] == "asks-early" else Readings(path)
    loader = DataLoader(stream, batch_size=30, num_workers=2)
    model = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {step + 1} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
