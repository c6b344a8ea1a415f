"""Bird calls of four species as lists of pitches. Each pool is sorted by length to pad little, the species are not."""

import random

import torch
import torch.nn.functional as F
from torch import nn

SPECIES, LONGEST = 4, 16


def record(count, seed):
    gen = random.Random(seed)
    calls = []
    for _ in range(count):
        species = gen.randrange(SPECIES)
        calls.append(([gen.gauss(species - 1.5, 1.0) for _ in range(gen.randint(4, LONGEST))], species))
    return calls


class Pools:
    def __init__(self, calls, size):
        self.calls, self.size = calls, size

    def __iter__(self):
        numbers = torch.randperm(len(self.calls)).tolist()
        for first in range(0, len(numbers), 512):
            pitches, labels = zip(*(self.calls[i] for i in numbers[first : first + 512]))
            by_length = sorted(range(len(pitches)), key=lambda i: len(pitches[i]))
            pitches = [pitches[i] for i in by_length]
            labels = torch.tensor(labels)
            for at in range(0, len(pitches), self.size):
                yield padded(pitches[at : at + self.size]), labels[at : at + self.size]


def padded(pitches):
    return torch.tensor([one + [0.0] * (LONGEST - len(one)) for one in pitches])


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    calls = record(4096, 1)
    model = nn.Sequential(nn.Linear(LONGEST, 32), nn.ReLU(), nn.Linear(32, SPECIES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(8):
        for x, y in Pools(calls, 64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
