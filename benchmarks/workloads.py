"""The training loops of `overhead.py`. `python workloads.py NAME REPORT` trains one and writes its times as JSON.

Times are medians over blocks of steps after the warm-up, so that a hiccup of the machine does not count: wall and
processor seconds per step, and the processor seconds of the process up to its first step.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Step = Callable[[], None]


def mlp() -> tuple[Step, int, int]:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(32, 32), torch.randint(0, 10, (32,))
    return lambda: train(model, optimizer, x, y), 200, 12


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm_two(self.two(F.relu(self.norm_one(self.one(x))))))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        *[Block(24) for _ in range(7)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 10),
    )


def cnn() -> tuple[Step, int, int]:
    model = convolutional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(4, 3, 24, 24), torch.randint(0, 10, (4,))
    return lambda: train(model, optimizer, x, y), 20, 12


def loader() -> tuple[Step, int, int]:
    model = convolutional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = TensorDataset(torch.randn(2000, 3, 24, 24), torch.randint(0, 10, (2000,)))
    batches = endless(DataLoader(data, batch_size=4, shuffle=True, num_workers=2, persistent_workers=True))

    def step() -> None:
        x, y = next(batches)
        train(model, optimizer, x, y)

    return step, 20, 12


def endless(batches: DataLoader[tuple[torch.Tensor, ...]]) -> Iterator[tuple[torch.Tensor, ...]]:
    while True:
        yield from batches


def transformer() -> tuple[Step, int, int]:
    layer = nn.TransformerEncoderLayer(96, 4, 256, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
    model = nn.Sequential(nn.Linear(16, 96), encoder, nn.Linear(96, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = torch.randn(8, 32, 16), torch.randint(0, 10, (8, 32))
    return lambda: train(model, optimizer, x, y), 20, 12


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
    optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    step, block, blocks = globals()[sys.argv[1]]()
    step()
    start_cpu = time.process_time()
    for _ in range(2 * block):
        step()
    wall, cpu = [], []
    for _ in range(blocks):
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(block):
            step()
        wall.append((time.perf_counter() - wall_start) / block)
        cpu.append((time.process_time() - cpu_start) / block)
    times = {"wall": statistics.median(wall), "cpu": statistics.median(cpu), "start_cpu": start_cpu}
    Path(sys.argv[2]).write_text(json.dumps(times), encoding="utf-8")


if __name__ == "__main__":
    main()
