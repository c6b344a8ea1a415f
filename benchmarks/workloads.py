"""The training loops of `overhead.py`: `python workloads.py NAME REPORT EDITS STARTED` trains one, writes its times.

Times are medians over blocks of steps after the warm-up, so that a hiccup of the machine does not count: wall and
processor seconds per step; wall seconds from STARTED (Unix time) to the end of the first step; peak resident bytes.
EDITS is what the script does itself to log: none, tensorboard, csv or traceml.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]
Workload = tuple[nn.Module, torch.optim.Optimizer, Batches, int]


def mlp() -> Workload:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    batch = torch.randn(32, 32), torch.randint(0, 10, (32,))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), always(batch), 200


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm_two(self.two(F.relu(self.norm_one(self.one(x))))))


def convolutional() -> tuple[nn.Module, torch.optim.Optimizer]:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)]
    model = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), *[Block(24) for _ in range(7)], *head)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def cnn() -> Workload:
    return *convolutional(), always((torch.randn(4, 3, 24, 24), torch.randint(0, 10, (4,)))), 20


def loader() -> Workload:
    data = TensorDataset(torch.randn(2000, 3, 24, 24), torch.randint(0, 10, (2000,)))
    batches = DataLoader(data, batch_size=4, shuffle=True, num_workers=4, persistent_workers=True)
    return *convolutional(), endless(batches), 20


def transformer() -> Workload:
    layer = nn.TransformerEncoderLayer(96, 4, 256, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
    model = nn.Sequential(nn.Linear(16, 96), encoder, nn.Linear(96, 10))
    batch = torch.randn(8, 32, 16), torch.randint(0, 10, (8, 32))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4), always(batch), 20


def ddp() -> Workload:
    torch.distributed.init_process_group("gloo")
    model, _, batches, block = transformer()
    wrapped = nn.parallel.DistributedDataParallel(model)
    return wrapped, torch.optim.AdamW(wrapped.parameters(), lr=1e-4), batches, block


def always(batch: tuple[torch.Tensor, torch.Tensor]) -> Batches:
    while True:
        yield batch


def endless(batches: DataLoader[Any]) -> Batches:
    while True:
        yield from batches


def logger(edits: str, folder: Path) -> Callable[[int, torch.Tensor], None]:
    """What the script does with the loss of a step."""
    if edits == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(folder / "board"))
        return lambda step, loss: writer.add_scalar("loss", loss.item(), step)
    if edits == "csv":
        from lightning.pytorch.loggers import CSVLogger

        csv = CSVLogger(str(folder))

        def log(step: int, loss: torch.Tensor) -> None:
            csv.log_metrics({"loss": loss.item()}, step=step)
            csv.save()  # writes every 100th time, its default

        return log
    return lambda _step, _loss: None


def around_step(edits: str) -> Callable[[nn.Module], contextlib.AbstractContextManager[Any]]:
    if edits == "traceml":
        import traceml_ai

        traceml_ai.init(mode="auto")
        return traceml_ai.trace_step
    return lambda _model: contextlib.nullcontext()


def main() -> None:
    name, report, edits, started = sys.argv[1], Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tracing = around_step(edits)
    model, optimizer, batches, block = globals()[name]()
    log = logger(edits, report.parent)
    done = 0

    def train(steps: int) -> None:
        nonlocal done
        for _ in range(steps):
            with tracing(model):
                x, y = next(batches)
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
                loss.backward()
                optimizer.step()
            done += 1
            log(done, loss)

    train(1)
    start = time.time() - started
    train(2 * block)
    wall, cpu = [], []
    for _ in range(12):
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        train(block)
        wall.append((time.perf_counter() - wall_start) / block)
        cpu.append((time.process_time() - cpu_start) / block)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    times = {"wall": statistics.median(wall), "cpu": statistics.median(cpu), "start": start, "peak": peak}
    if int(os.environ.get("RANK", "0")) == 0:
        report.write_text(json.dumps(times), encoding="utf-8")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
