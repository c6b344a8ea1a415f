"""Trains on samples that NumPy and Python augment, after seeding what its arguments name."""

import random
import sys

import numpy as np

if "numpy before" in sys.argv:
    np.random.seed(3)
if "python before" in sys.argv:
    random.seed(7)

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

if "torch" in sys.argv:
    torch.manual_seed(1)
if "numpy" in sys.argv:
    np.random.seed(1)
if "python" in sys.argv:
    random.seed(1)
if "restores" in sys.argv:  # as torch.compile does
    random.setstate(random.getstate())
if "isolates" in sys.argv:  # as Lightning does around its sanity check
    states = random.getstate(), np.random.get_state()
    random.random(), np.random.rand()
    random.setstate(states[0])
    np.random.set_state(states[1])


class Noisy(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        noise = (
            np.random.randn(4) if any(one.startswith("numpy") or one == "draws" for one in sys.argv) else np.zeros(4)
        )
        if any(one.startswith("python") for one in sys.argv[1:]):
            noise = noise * random.random()
        return torch.from_numpy(noise).float() + index


model = nn.Linear(4, 1)


def step(x):
    """By hand: the first optimizer of a process imports torch._dynamo, which takes seconds."""
    model(x).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 1e-5 * parameter.grad
            parameter.grad = None


for _ in range(2 if "loop" not in sys.argv else 0):
    for x in DataLoader(Noisy(), batch_size=4, num_workers=2 if "workers" in sys.argv else 0):
        step(x)
if "loop" in sys.argv:  # which cuts its own batches, without a loader
    samples = torch.randn(40, 4)
    for _ in range(20):
        rows = np.random.permutation(40)[:4] if "loop draws" in sys.argv else torch.randperm(40)[:4].numpy()
        step(samples[torch.from_numpy(rows)])
