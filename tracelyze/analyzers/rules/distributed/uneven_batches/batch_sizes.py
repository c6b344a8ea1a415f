"""The sizes and the number of the batches that one rank took, to be compared with those of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.rules.distributed.uneven_batches import own_data

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

MOST_STEPS = 2000


class Batches(NamedTuple):
    """What is compared of one rank: its steps, the usual size of its batches and the share that has it, its loader's
    length, and the samples that it has by itself."""

    steps: int
    usual: float
    share: float
    mean: float
    length: int | None
    wrapped: bool
    ended: bool
    samples: float | None = None


def of_rank(process: Process) -> Batches | None:
    """What one rank took; None unless it made one optimization, of batches whose size is known."""
    if len(process.optimizations) != 1:
        return None
    steps = process.longest.steps
    sizes = steps["batch_size"][:MOST_STEPS]
    sizes = sizes[np.isfinite(sizes)]
    if not len(sizes):
        return None
    values, counts = np.unique(sizes, return_counts=True)
    fed = steps["loader"][np.isfinite(steps["loader"])]
    loaders = [row for row in process.loaders.records() if len(fed) and row["loader"] == fed[0]]
    lengths = [row["length"] for row in loaders]
    names = [str(row["name"]) for row in process.models.records()]
    return Batches(
        len(steps),
        float(values[np.argmax(counts)]),
        float(counts.max() / len(sizes)),
        float(sizes.mean()),
        int(lengths[0]) if lengths and lengths[0] else None,
        any(name.startswith(("DistributedDataParallel", "FullyShardedDataParallel", "FSDP")) for name in names),
        process.exit.kind == "finished",
        own_data.samples(loaders[0]) if loaders else None,
    )
