"""Trains on batches whose content the tests know, in the ways that the argument names."""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

torch.manual_seed(0)
IMAGES = torch.randn(64, 3, 8, 8)
LABELS = torch.arange(64) % 4
EPOCHS = 2


def model():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))


def train(net, batches, optimizer, epochs=EPOCHS, validate=()):
    for _ in range(epochs):
        net.train()
        for inputs, targets in batches:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            for inputs, targets in validate:
                F.cross_entropy(net(inputs), targets)


class Dictionaries(IterableDataset):
    """A stream of mappings, the second image of every batch blank, one of them with a NaN."""

    def __iter__(self):
        for start in range(0, 64, 8):
            pixels = IMAGES[start : start + 8].clone()
            pixels[1] = 0.5
            if start == 32:
                pixels[3, 2, 5, 5] = float("nan")
            yield {"pixels": pixels.permute(0, 2, 3, 1), "labels": LABELS[start : start + 8], "name": "x"}


def main(kind):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    if kind == "split":
        loader = DataLoader(TensorDataset(IMAGES, LABELS), batch_size=8)
        validation = DataLoader(TensorDataset(IMAGES[:16], LABELS[:16]), batch_size=16)
        train(net, loader, optimizer, validate=validation)
    elif kind == "stream":
        for batch in DataLoader(Dictionaries(), batch_size=None):
            optimizer.zero_grad()
            F.cross_entropy(net(batch["pixels"].permute(0, 3, 1, 2)), batch["labels"]).backward()
            optimizer.step()
    elif kind == "plain":
        train(net, list(zip(IMAGES.split(8), LABELS.split(8), strict=True)), optimizer, epochs=1)
    elif kind == "unusual":  # nothing that prints could be made of, and a class that counts its own length
        train(net, [(IMAGES[:8].to(torch.float64), LABELS[:8])] * 0, optimizer)
        for inputs in (IMAGES[:8].to(torch.complex64), IMAGES[:0], IMAGES[:8].to_sparse()):
            for batch in DataLoader([inputs], batch_size=None):
                assert batch is not None
        train(net, DataLoader(TensorDataset(IMAGES, LABELS), batch_size=8), optimizer, epochs=1)


main(sys.argv[1])
