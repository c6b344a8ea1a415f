"""How a device's caching allocator fared: what it holds, what of that is free, and when it had to ask for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.timeline.steps import Steps
from tracelyze.analyzers.kineto.timeline.table import Array, Table, distinct
from tracelyze.analyzers.kineto.timeline.trace import Trace

SEGMENT: Final = 20 * 2**20
"""Bytes: PyTorch's allocator asks for small tensors in pieces of 2 MiB, for all others in pieces of 20 MiB or more."""


@dataclass(frozen=True)
class MemoryUse:
    """The memory of one device within the steps, in bytes.

    `allocated`, `reserved`: the largest of each. `misfits`: steps of the later half in which the allocator took a
    segment although it held more free memory than that; `segments`: how many, `free`: the least share of its memory
    that was free at those times. `retries`: segments that it gave back, in the later half. `later`: steps of that half.
    """

    allocated: int
    reserved: int
    misfits: int
    segments: int
    free: float
    retries: int
    later: int


def changes_worth_keeping(memory: Table) -> Array:
    """The rows of a table of memory changes that say as much as all of them, in order of time, shape [rows kept].

    Of each device the first and the last, those on both sides of a change of what is reserved, and those with more
    allocated than ever before: a trace holds hundreds of changes per step, and few of these.
    """
    order = np.lexsort((memory["start"], memory["device"])).astype(np.int32)
    device, reserved, allocated = (memory[name][order] for name in ("device", "reserved", "allocated"))
    edge = (reserved[1:] != reserved[:-1]) | (device[1:] != device[:-1])
    kept = np.append(True, edge) | np.append(edge, True)
    for rows in np.split(np.arange(len(order)), np.flatnonzero(np.diff(device)) + 1):
        most = np.maximum.accumulate(allocated[rows])
        kept[rows[1:]] |= most[1:] > most[:-1]
    chosen = order[kept]
    return np.asarray(chosen[np.argsort(memory["start"][chosen], kind="stable")])


def memory_use(trace: Trace, steps: Steps) -> MemoryUse | None:
    """The memory of the device that holds most of it; None if the trace does not show it."""
    memory = trace.memory
    if not len(memory) or not len(steps):
        return None
    device = int(memory["device"][memory["reserved"] == memory["reserved"].max()].min())
    rows = np.flatnonzero((memory["device"] == device) & (memory["start"] <= steps.end[-1]))
    allocated, reserved, times = (memory[name][rows] for name in ("allocated", "reserved", "start"))
    if not len(rows):
        return None
    grown = np.diff(reserved, prepend=reserved[0])
    unused = np.concatenate(([0], (reserved - allocated)[:-1]))
    before = np.maximum(np.concatenate((reserved[:1], reserved[:-1])), 1)
    step = np.searchsorted(steps.start, times, side="right") - 1
    half = (len(steps) + 1) // 2
    late = step >= half
    misfit = late & (grown >= SEGMENT) & (unused >= grown)
    return MemoryUse(
        allocated=int(allocated.max()),
        reserved=int(reserved.max()),
        misfits=len(distinct(step[misfit])),
        segments=int(misfit.sum()),
        free=float((unused / before)[misfit].min()) if misfit.any() else 0.0,
        retries=int((late & (grown <= -SEGMENT)).sum()),
        later=len(steps) - half,
    )
