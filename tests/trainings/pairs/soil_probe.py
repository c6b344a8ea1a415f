"""Moisture classes from the raw counts of soil probes, in five ways to give batches to the loop.

Faults, each of which leaves the counts as the probes give them: raw-dataset, raw-transform, raw-collate, raw-slices,
raw-generator.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAULTS = ("raw-dataset", "raw-transform", "raw-collate", "raw-slices", "raw-generator")
PROBES, CHANNELS = 600, 20


class Counts(Dataset):
    def __init__(self, counts, wet, scale, transform=None):
        self.counts, self.wet, self.scale, self.transform = counts, wet, scale, transform

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        label = int(self.wet[index])
        row = self.counts[index]
        if self.transform is not None:
            return self.transform(row), label
        row = torch.from_numpy(row)
        return (row - 2500) / 1000 if self.scale else row, label


class ToNumbers:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, row):
        numbers = torch.as_tensor(row, dtype=torch.float32)
        return (numbers - 2500) / 1000 if self.scale else numbers


class Collate:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, rows):
        counts = torch.stack([torch.from_numpy(row) for row, _ in rows])
        wet = torch.tensor([label for _, label in rows])
        return (counts - 2500) / 1000 if self.scale else counts, wet


def batches(counts, wet, size):
    order = torch.randperm(len(counts))
    for first in range(0, len(counts), size):
        rows = order[first : first + size]
        yield counts[rows], wet[rows]


def make_counts():
    rng = np.random.default_rng(3)
    counts = rng.uniform(500, 4500, (PROBES, CHANNELS)).astype(np.float32)
    return counts, (counts[:, :3].mean(1) > 2500).astype(np.int64)


def loader_of(kind, scale, counts, wet):
    if kind == "dataset":
        return DataLoader(Counts(counts, wet, scale), batch_size=20, shuffle=True)
    if kind == "transform":
        return DataLoader(Counts(counts, wet, scale, ToNumbers(scale)), batch_size=20, shuffle=True)
    return DataLoader(list(zip(counts, wet, strict=True)), batch_size=20, shuffle=True, collate_fn=Collate(scale))


def train(model, optimizer, loader):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def train_on_slices(model, optimizer, counts, wet):
    order = torch.randperm(len(counts))
    for first in range(0, len(counts), 20):
        x = counts[order[first : first + 20]]
        y = wet[order[first : first + 20]]
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def train_on_batches(model, optimizer, counts, wet):
    for x, y in batches(counts, wet, 20):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main(fault):
    torch.manual_seed(0)
    kind = (fault or "healthy-dataset").split("-")[1]
    counts, wet = make_counts()
    model = nn.Sequential(nn.Linear(CHANNELS, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.from_numpy(counts), torch.from_numpy(wet)
    loader = loader_of(kind, fault is None, counts, wet)
    for epoch in range(10):
        if kind == "slices":
            loss = train_on_slices(model, optimizer, x, y)
        elif kind == "generator":
            loss = train_on_batches(model, optimizer, x, y)
        else:
            loss = train(model, optimizer, loader)
        print(f"epoch {epoch}: {loss:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS)
    main(parser.parse_args().fault)
