"""Sets of time ranges as sorted, disjoint numpy arrays, and how much of other ranges they cover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Mask, Table, slices

Ranges = tuple[Floats, Floats]
"""Starts and ends, sorted, disjoint; each of shape [ranges]."""

EMPTY: Final[Ranges] = (np.zeros(0), np.zeros(0))


def merge(starts: Floats, ends: Floats) -> Ranges:
    """The union of ranges as sorted, disjoint ones; ranges that touch become one. Shapes [n] to [at most n]."""
    if not len(starts):
        return EMPTY
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.ones(len(starts), dtype=bool)
    np.greater(starts[1:], reach[:-1], out=opens[1:])
    return starts[opens], reach[np.append(opens[1:], True)]


def merged(starts: Floats, ends: Floats, chosen: Mask | None, size: int) -> Iterator[Ranges]:
    """The union of ranges in order of their starts, piece by piece and in order: what :func:`merge` gives at once.

    A piece comes from about `size` ranges, of which `chosen` (shape [n]) may name some: a large trace has a million,
    and their copies would be the largest thing in memory.
    """
    held = EMPTY  # what the ranges of the next piece may reach
    for part in slices(len(starts), size):
        own = slice(None) if chosen is None else chosen[part]
        ranges = merge(np.append(held[0], starts[part][own]), np.append(held[1], ends[part][own]))
        held = ranges[0][-1:], ranges[1][-1:]
        if len(ranges[0]) > 1:
            yield ranges[0][:-1], ranges[1][:-1]
    if len(held[0]):
        yield held


def union(sets: Sequence[Ranges]) -> Ranges:
    """The union of several sets."""
    filled = [ranges for ranges in sets if len(ranges[0])]
    if len(filled) == 1:
        return filled[0]
    if not filled:
        return EMPTY
    return merge(np.concatenate([ranges[0] for ranges in filled]), np.concatenate([ranges[1] for ranges in filled]))


def length(ranges: Ranges) -> float:
    """Total length of a set."""
    return float((ranges[1] - ranges[0]).sum())


def covered(ranges: Ranges, start: Floats, end: Floats) -> Floats:
    """How much of each [start, end] the set covers, shape [n]; 0 where end <= start."""
    if not len(ranges[0]) or not len(start):
        return np.zeros(len(start))
    filled = np.concatenate(([0.0], np.cumsum(ranges[1] - ranges[0])))
    return np.maximum(_filled_until(ranges, filled, end) - _filled_until(ranges, filled, start), 0.0)


def _filled_until(ranges: Ranges, filled: Floats, times: Floats) -> Floats:
    """How much of the set lies before each time."""
    index = np.searchsorted(ranges[0], times, side="right")
    last = np.maximum(index - 1, 0)
    beyond = np.where(index > 0, np.maximum(ranges[1][last] - times, 0.0), 0.0)
    return np.asarray(filled[index] - beyond)


def contains(ranges: Ranges, times: Floats) -> Mask:
    """Whether each time lies within a range, its start included and its end included, shape [n]."""
    if not len(ranges[0]):
        return np.zeros(len(times), dtype=bool)
    index = np.searchsorted(ranges[0], times, side="right") - 1
    return np.asarray((index >= 0) & (ranges[1][np.maximum(index, 0)] >= times))


def near(ranges: Ranges, start: float, end: float) -> Ranges:
    """The part of the set that can matter between two times."""
    first = int(np.searchsorted(ranges[1], start, side="left"))
    last = int(np.searchsorted(ranges[0], end, side="right"))
    return ranges[0][first:last], ranges[1][first:last]


def outermost(table: Table) -> Array:
    """The rows of a table of host ranges that lie within no other of their thread, sorted by thread and time."""
    start, end, thread = table["start"], table["end"], table["thread"]
    order = np.lexsort((-end, start, thread)).astype(np.int32)
    kept = []
    bounds = np.flatnonzero(np.diff(thread[order])) + 1
    for rows in np.split(order, bounds):
        own = end[rows]
        reach = np.maximum.accumulate(own)
        kept.append(rows[np.append(True, own[1:] > reach[:-1])])
    return kept[0] if len(kept) == 1 else np.concatenate(kept)
