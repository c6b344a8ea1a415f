"""Trains a little on a loader with workers, then does what the argument says. The pauses after which the collector
looks closer are shortened first, so that a test need not wait for half a minute."""

import sys
import threading
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from tracelyze.collectors.signals.data import loader_processes
from tracelyze.collectors.signals.machine import stalls

stalls.SECONDS = loader_processes.LONG_SECONDS = stalls.STEPS = 0.5
SECONDS = 4.0


class Slow(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 7:
            time.sleep(self.seconds)
        return torch.randn(4), 0


def train(loader):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def stuck_forever():
    other = threading.Timer(1.5, str)
    other.name = "prefetch"
    other.start()
    threading.Event().wait(SECONDS)


if sys.argv[1] == "hang":
    train(DataLoader(Slow(0.0)))
    stuck_forever()
elif sys.argv[1] == "slow-worker":
    train(DataLoader(Slow(SECONDS), num_workers=2, prefetch_factor=1))
elif sys.argv[1] == "allocate":
    train(DataLoader(Slow(0.0)))
    held = torch.ones(25_000_000)
    time.sleep(2.5)
