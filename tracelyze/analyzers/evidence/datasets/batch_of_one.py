"""A batch of one sample that ended the program: whether it was the last of its epoch, and the loader without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence.editing import loader_arguments

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

MOSTLY = "Mostly it is the last batch of an epoch, when the number of samples divides with remainder one."


def which(process: Process) -> str:
    """A sentence on which batch of the epoch it was, by the batches that the training had fetched before."""
    if not process.optimizations:
        return MOSTLY
    steps, loader = process.longest.steps, process.longest.loader
    begun = np.flatnonzero(np.nan_to_num(steps["loader_first"]) == 1)
    length, size = loader.get("length"), loader.get("batch_size")
    fetched = int(np.nansum(steps["loader_batches"][begun[-1] :])) if len(begun) else 0
    if not length or not size or size < 2 or loader.get("drop_last") or fetched + 1 != length:
        return MOSTLY
    return (
        f"It was the last of the epoch's {length:,} batches: the number of samples, divided by {size}, leaves one over."
    )


def left_out(process: Process) -> tuple[Diff | None, Location | None]:
    """The training loader without its last, incomplete batch, and the line that makes it."""
    if not process.optimizations:
        return None, None
    made_at = process.site(process.longest.loader.get("made_at"))
    diff = loader_arguments.with_arguments(process, made_at, {"drop_last": "True"})
    return diff, made_at if diff is not None else None


def example(process: Process) -> str:
    """The script's own statement that makes the training loader, without its last batch; empty where none is known."""
    if not process.optimizations or process.longest.loader.get("made_at") is None:
        return ""
    return loader_arguments.example(process, process.longest.loader, {"drop_last": "True"})
