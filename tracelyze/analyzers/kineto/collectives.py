"""Which rank the others wait for: the same collectives on all ranks, matched, and who arrives last.

A collective ends on all its ranks together, when the last one has arrived: so the rank that is waited for has the
shortest kernels, and the ends tell how far apart the clocks of two ranks are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.table import Floats, Integers

END_SPREAD: Final = 0.1
"""Ends further apart than this share of the longest kernel mean clocks that differ: a collective ends together
(measured on eight ranks with a common clock: 1 to 7 us on kernels of 0.5 to 7.6 ms)."""

LEAST_END_SPREAD: Final = 50.0
"""Microseconds of end spread that say nothing about clocks, whatever the length of the kernels."""


@dataclass(frozen=True)
class CollectiveTimes:
    """The communication kernels of one rank, in order of start: times in microseconds on the clock of the files' base.

    `key`: index into `keys`, each the process group and the kind of collective. `step`: index of the rank's step in
    which the kernel starts, -1 outside of all. Shapes [kernels].
    """

    keys: list[str]
    key: Integers
    start: Floats
    end: Floats
    step: Integers


@dataclass(frozen=True)
class Arrivals:
    """Matched collectives over `ranks`: `start` and `end` with clocks put right, `step`; shapes [collectives, ranks].

    Rows are in order of time; NaN where a rank does not belong to the collective. `realigned`: the clocks differed,
    and were put right by the ends. `trusted`: most collectives end together, as they must. `unmatched`: collectives
    that not all ranks made equally often, for people.
    """

    ranks: list[int]
    start: Floats
    end: Floats
    step: Integers
    kinds: list[str]
    realigned: bool
    trusted: bool
    unmatched: list[str]

    def waits(self) -> Floats:
        """How long each rank waits in each collective for the last one to arrive, shape [collectives, ranks]."""
        return np.asarray(np.nanmax(self.start, axis=1, keepdims=True) - self.start)

    def last(self) -> Integers:
        """Which of `ranks` arrives last, as an index, shape [collectives]."""
        return np.asarray(np.nanargmax(self.start, axis=1))

    def delay(self) -> Floats:
        """How much later the last rank arrives than the middle one of the others, shape [collectives]."""
        others = self.start.copy()
        others[np.arange(len(others)), self.last()] = np.nan
        return np.asarray(np.nanmax(self.start, axis=1) - np.nanmedian(others, axis=1))


def match(times: Mapping[int, CollectiveTimes]) -> Arrivals | None:
    """The k-th collective of each group and kind on every rank that takes part; None if no two ranks share any."""
    ranks = sorted(times)
    rows: list[tuple[Floats, Floats, int, str]] = []
    unmatched: list[str] = []
    for key in sorted({key for one in times.values() for key in one.keys}):
        members = [index for index, rank in enumerate(ranks) if key in times[rank].keys]
        if len(members) < 2:
            continue
        chosen = {index: _of_key(times[ranks[index]], key) for index in members}
        counts = {len(places) for places in chosen.values()}
        if len(counts) > 1:
            unmatched.append(f"{key} ({min(counts)} to {max(counts)} times)")
            continue
        for place in range(counts.pop()):
            start, end = np.full(len(ranks), np.nan), np.full(len(ranks), np.nan)
            for index, places in chosen.items():
                start[index] = times[ranks[index]].start[places[place]]
                end[index] = times[ranks[index]].end[places[place]]
            first = times[ranks[members[0]]]
            rows.append((start, end, int(first.step[chosen[members[0]][place]]), key))
    if not rows:
        return None
    rows.sort(key=lambda row: float(np.nanmin(row[1])))
    start, end = np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
    shift = np.zeros(len(ranks)) if _end_together(start, end) else _clock_shifts(end)
    start, end = start - shift, end - shift
    step = np.array([row[2] for row in rows], dtype=np.int64)
    kinds = [row[3] for row in rows]
    return Arrivals(ranks, start, end, step, kinds, bool(shift.any()), _end_together(start, end), unmatched)


def blame(windows: Sequence[Arrivals]) -> tuple[dict[int, float], list[dict[int, float]]]:
    """By rank, how long collectives wait for it, as the last, beyond the others' middle: in all, and per step."""
    total: dict[int, float] = {rank: 0.0 for arrivals in windows for rank in arrivals.ranks}
    steps: list[dict[int, float]] = []
    for arrivals in windows:
        last, delay = arrivals.last(), arrivals.delay()
        for step in np.unique(arrivals.step[arrivals.step >= 0]):
            own = dict.fromkeys(arrivals.ranks, 0.0)
            for index in np.flatnonzero(arrivals.step == step):
                own[arrivals.ranks[int(last[index])]] += float(delay[index])
            steps.append(own)
            for rank, value in own.items():
                total[rank] += value
    return total, steps


def _of_key(times: CollectiveTimes, key: str) -> Sequence[int]:
    return [int(index) for index in np.flatnonzero(times.key == times.keys.index(key))]


def _end_together(start: Floats, end: Floats) -> bool:
    """Whether most collectives end on all ranks at the same time."""
    spread = np.nanmax(end, axis=1) - np.nanmin(end, axis=1)
    longest = np.nanmax(end - start, axis=1)
    return float(np.mean(spread <= np.maximum(LEAST_END_SPREAD, END_SPREAD * longest))) >= 0.5


def _clock_shifts(end: Floats) -> Floats:
    """What each rank's clock is ahead of the middle one, from the ends of shared collectives, shape [ranks]."""
    return np.nan_to_num(np.nanmedian(end - np.nanmedian(end, axis=1, keepdims=True), axis=0))
