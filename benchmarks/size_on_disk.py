"""Bytes that a long run takes on disk, and the time that reading it back takes.

    python benchmarks/size_on_disk.py --steps 1000000

Writes rows of the table steps through the collector's own stream, a flush for each half second of 20 ms steps, with
values that change as a training's do: losses, norms and times with noise in every digit, counts and flags that stay.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracelyze import schema
from tracelyze.analyzers.engine import diagnose
from tracelyze.collectors.storage import stream
from tracelyze.collectors.storage.stream import TableStream

STEP_SECONDS = 0.02
FLUSH_ROWS = 25


@dataclass(frozen=True)
class Size:
    """Bytes per step in the Arrow streams while they grow and in the Parquet files, and how many files remain."""

    raw: float
    parquet: float
    files: int


def write(steps: int, folder: Path) -> Size:
    """Write so many steps into `folder`, convert them as the collector does, and measure."""
    chance = random.Random(0)
    table = TableStream(schema.STEPS)
    table.folder = folder
    raw = largest = 0
    for step in range(1, steps + 1):
        table.append(row(step, chance))
        if step % FLUSH_ROWS == 0 or step == steps:
            table.flush()
            now = sum(path.stat().st_size for path in folder.glob("*.arrows"))
            raw, largest = (raw + largest, 0) if now < largest else (raw, now)  # a part was full and converted
    table.close(convert=True)
    files = list(folder.glob("steps*.parquet"))
    return Size((raw + largest) / steps, sum(path.stat().st_size for path in files) / steps, len(files))


def row(step: int, chance: random.Random) -> dict[str, Any]:
    """One step of a loop with gradient clipping, a cosine schedule, mixed precision and a loader."""
    seconds = STEP_SECONDS * math.exp(chance.gauss(0, 0.1))
    norm = 2.0 * math.exp(chance.gauss(0, 0.3))
    return {
        "optimizer": 0, "step": step, "time": step * STEP_SECONDS + chance.random() * 1e-3, "seconds": seconds,
        "loss": 2.0 / math.sqrt(step) + chance.gauss(0, 0.05), "backwards": 1, "loss_divisor": None, "batch_size": 32,
        "grad_norm": norm, "grad_norm_source": 1, "clip_max_norm": 1.0, "clips": 1, "clipped_scaled": False,
        "parameters": 147, "grads_none": 0, "grads_zero": 0, "grads_nonfinite": 0, "grads_carried": 0,
        "grads_cleared": 0, "grads_discarded": 0, "lr": 3e-4 * math.cos(step * 1e-6) ** 2, "scale": 65536.0,
        "skipped": False, "autocast": 1, "model_in_train": True, "modules_sensitive": 25, "modules_in_train": 25,
        "loader": 0, "loader_wait": 1e-4 * math.exp(chance.gauss(0, 0.5)), "device_wait": None, "loader_batches": 1,
        "loader_first": False, "host_rss": 2_000_000_000 + 4096 * chance.randrange(5000), "device_allocated": None,
        "device_reserved": None, "device_peak": None, "device_seconds": None, "live_graphs": 0,
        "overhead": 1e-4 * math.exp(chance.gauss(0, 0.3)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as run:
        folder = Path(run) / "rank00000-attempt0-pid1"
        folder.mkdir()
        size = write(given.steps, folder)
        begin = time.perf_counter()
        told = diagnose(run)
        print(f"{given.steps} steps: {size.raw:.0f} bytes a step while written, {size.parquet:.0f} as Parquet")
        parts = f"parts of {stream.SEGMENT_BYTES >> 20} MB before they are converted"
        print(f"{size.parquet * given.steps / 1e6:.0f} MB in {size.files} files ({parts})")
        print(f"diagnosed in {time.perf_counter() - begin:.1f} s: {told.run.steps} steps")


if __name__ == "__main__":
    main()
