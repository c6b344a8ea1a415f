"""The trainings that `on_gpu.py` records: each prints its own truth, one JSON line, as its last line.

    python benchmarks/gpu_programs.py PROGRAM DEVICE STEPS

Sizes are such that a step takes some milliseconds on a GPU and on one CPU core alike.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

Truth = dict[str, Any]
SLOW, QUICK = 0.02, 0.0  # seconds that a sample takes to load


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random vectors, each of which takes so long to load."""

    def __init__(self, count: int, width: int, seconds: float) -> None:
        self.count, self.width, self.seconds = count, width, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.seconds:
            time.sleep(self.seconds)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(self.width, generator=generator), torch.randint(0, 10, (), generator=generator)


def model_for(device: str, width: int = 64, hidden: int = 256, depth: int = 2) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(width, hidden), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, 10)).to(device)


def batches(device: str, steps: int, width: int = 64, size: int = 32) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same batches on every device."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(size, width, generator=generator)
        yield x.to(device), torch.randint(0, 10, (size,), generator=generator).to(device)


def plain(device: str, steps: int) -> Truth:
    """Losses of a plain loop, read after its end: nothing waits for the device."""
    model = model_for(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for x, y in list(batches(device, steps * int(os.environ.get("STEPS_MORE", "1")))):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses).tolist()}


def synchronising(device: str, steps: int) -> Truth:
    """The plain loop in torch's sync debug mode: each call that makes the host wait warns."""
    seen: Counter[str] = Counter()

    def note(message: Any, _category: Any, filename: str, lineno: int, *_: Any) -> None:
        if "synchroniz" in str(message):
            seen[f"{Path(filename).name}:{lineno}"] += 1

    warnings.simplefilter("always")
    warnings.showwarning = note
    torch.cuda.set_sync_debug_mode("warn")
    plain(device, steps)
    torch.cuda.set_sync_debug_mode("default")
    return {"synchronisations": dict(seen)}


def _loading(device: str, steps: int, seconds: float, hidden: int, trace: str) -> Truth:
    """A loop that is fed by a loader, with its waits timed by hand and some steps of it profiled."""
    model = model_for(device, hidden=hidden, depth=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Samples(steps, 64, seconds), batch_size=1)
    waits, ends = [], []
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profiled = torch.profiler.profile(
        activities=activities, schedule=torch.profiler.schedule(wait=steps // 2, warmup=2, active=6, repeat=1)
    )
    with profiled:
        fetched = time.perf_counter()
        for x, y in loader:
            waits.append(time.perf_counter() - fetched)
            x, y = x.expand(256, -1).to(device), y.expand(256).to(device)
            for _ in range(4):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if device == "cuda":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())
            profiled.step()  # which takes seconds where a window begins or ends: no wait for the loader
            fetched = time.perf_counter()
    profiled.export_chrome_trace(trace)
    return {"waits": waits, "seconds": ends[-1] - ends[0], "profiled": [steps // 2 + 2, steps // 2 + 8], "trace": trace}


def input_bound(device: str, steps: int) -> Truth:
    return _loading(device, steps, SLOW, 256, os.environ["TRACE"])


def compute_bound(device: str, steps: int) -> Truth:
    return _loading(device, steps, QUICK, 4096 if device == "cuda" else 512, os.environ["TRACE"])


def memory(device: str, steps: int) -> Truth:
    """What the allocator says at the end of every step."""
    model = model_for(device, hidden=1024)
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    for x, y in batches(device, steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        asked = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated())
        seen.append(asked if device == "cuda" else (0, 0, 0))
    return {"memory": seen}


def out_of_memory(device: str, steps: int) -> Truth:
    """Tensors are kept until no memory is left; on a CPU the exception is raised by hand."""
    model = model_for(device)
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for step, (x, y) in enumerate(batches(device, steps)):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step >= steps // 2:
            if device != "cuda":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            kept.append(torch.empty(2**32, dtype=torch.uint8, device=device))
    return {"kept": len(kept)}


def scaled(device: str, steps: int) -> Truth:
    """float16 autocast with a GradScaler whose first scale is far too large; bfloat16 on a CPU."""
    model = model_for(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**127 if device == "cpu" else 2.0**40, growth_interval=20)
    kind = torch.float16 if device == "cuda" else torch.bfloat16
    scales, skipped = [], []
    for x, y in batches(device, steps):
        with torch.autocast(device, kind):
            loss = F.cross_entropy(model(x) * 16, y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        scales.append(before)
        skipped.append(scaler.get_scale() < before)
    return {"scales": scales, "skipped": skipped}


def accumulating(device: str, steps: int) -> Truth:
    """Four micro-batches a step that a generator makes: on a device each lies where an earlier one lay."""
    model = model_for(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, (x, y) in enumerate(batches(device, 4 * steps), start=1):
        (F.cross_entropy(model(x), y) / 4).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    return {"microbatches": 4}


def two_losses(device: str, steps: int) -> Truth:
    """Two backwards a step of one batch, which is sent to the device for each."""
    model = model_for(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in list(batches("cpu", steps)):
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        (model(x.to(device)).square().mean() * 0.01).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"microbatches": 1}


def lasting(device: str, steps: int) -> Truth:
    """Four seconds of steps, so that what is asked once a second is asked."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < 4:
        plain(device, steps)
    return {"seconds": time.perf_counter() - begin}


def graphed(device: str, steps: int) -> Truth:
    """A training step that is captured in a CUDA graph and replayed."""
    model = model_for(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    given = list(batches(device, steps))
    x, y = given[0][0].clone(), given[0][1].clone()

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for new_x, new_y in given:
        x.copy_(new_x)
        y.copy_(new_y)
        graph.replay()
        losses.append(loss.clone())
    return {"losses": torch.stack(losses).detach().tolist()}


def compiled(device: str, steps: int) -> Truth:
    """The plain loop with a compiled model; on a CPU without code generation, which needs a compiler."""
    model = model_for(device)
    run = torch.compile(model) if device == "cuda" else torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for x, y in batches(device, steps):
        loss = F.cross_entropy(run(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses).tolist()}


PROGRAMS: dict[str, Callable[[str, int], Truth]] = {
    one.__name__: one
    for one in (
        plain,
        synchronising,
        input_bound,
        compute_bound,
        memory,
        out_of_memory,
        scaled,
        accumulating,
        two_losses,
        lasting,
        graphed,
        compiled,
    )
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(False)
    print(json.dumps(PROGRAMS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
