"""Data by chained Python generators: read, shuffle in a buffer, make batches. Scheduler stepped once per batch."""

import itertools
import random

import torch
from torch import nn


def read(seed):
    rng = random.Random(seed)
    while True:
        a, b = rng.random(), rng.random()
        yield [a, b, a * b], float(a > b)


def shuffled(rows, size, rng):
    buffer = list(itertools.islice(rows, size))
    for row in rows:
        k = rng.randrange(size)
        buffer[k], row = row, buffer[k]
        yield row


def batched(rows, size):
    while True:
        chunk = list(itertools.islice(rows, size))
        x, y = zip(*chunk, strict=True)
        yield torch.tensor(x), torch.tensor(y)


def main():
    torch.manual_seed(32)
    torch.set_num_threads(1)
    batches = batched(shuffled(read(1), 256, random.Random(2)), 32)
    model = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=400, eta_min=1e-4)
    for step, (x, y) in zip(range(400), batches, strict=False):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 80 == 0:
            print(step, f"{loss.item():.4f}", f"{scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    main()
