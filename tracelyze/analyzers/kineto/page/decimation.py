"""Slices of a lane, decimated to what a screen can show: what is too short to be seen is drawn with its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.timeline import intervals
from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Integers
from tracelyze.diagnosis import Lane

UNITS: Final = 4096
"""Parts that a stretch is divided into: a drawing about 1000 pixels wide, magnified four times."""

CELL: Final = 4
"""Units over which slices shorter than one unit are drawn as one."""

MOST_SLICES: Final = 600
"""Slices of one lane. Two timelines of a dozen lanes then stay below 170 KB of page."""

MOST_INNER: Final = 600
"""Slices of the levels of a lane that are drawn only when a reader opens it."""


@dataclass(frozen=True)
class Slices:
    """What happened in one lane: arrays of shape [slices]; `label` and `kind` as in :class:`diagnosis.Lane`.

    `launched`: when the host launched each, NaN where that is not known; None for what is not launched. `detail`: the
    number of what it says of itself, -1 for nothing.
    """

    start: Floats
    end: Floats
    label: Integers
    kind: Integers
    level: Integers
    launched: Floats | None = None
    detail: Integers | None = None

    def chosen(self, rows: Array) -> Slices:
        """Some of them."""
        launched = None if self.launched is None else self.launched[rows]
        detail = None if self.detail is None else self.detail[rows]
        columns = self.start[rows], self.end[rows], self.label[rows], self.kind[rows], self.level[rows]
        return Slices(*columns, launched, detail)


def lane(name: str, slices: Slices, begin: float, end: float, shown: int = 0) -> Lane | None:
    """The lane between two times; None if there is nothing in it.

    It has at most MOST_SLICES slices on the first `shown` levels (0: on all), and MOST_INNER on those below.
    """
    slices = slices.chosen((slices.end > begin) & (slices.start < end))
    if not len(slices.start):
        return None
    start = np.maximum(slices.start, begin) - begin
    stop = np.minimum(slices.end, end) - begin
    length = stop - start
    covered = intervals.length(intervals.merge(*_sorted(start, stop)))
    outer = slices.level < shown if shown else np.ones(len(start), dtype=bool)
    drawn = _thinned(start, stop, slices, np.flatnonzero(outer), MOST_SLICES, end - begin)
    if not outer.all():
        inner = _thinned(start, stop, slices, np.flatnonzero(~outer), MOST_INNER, end - begin)
        drawn = tuple(np.concatenate(columns) for columns in zip(drawn, inner, strict=True))
    first, last, lead, merged, busy = drawn
    return Lane(
        name=name,
        start=_rounded(first),
        length=_rounded(last - first),
        level=slices.level[lead].tolist(),
        label=slices.label[lead].tolist(),
        kind=slices.kind[lead].tolist(),
        merged=merged.tolist(),
        busy=_rounded(busy),
        slices=len(length),
        busy_us=round(covered, 1),
        launched=_launched(slices, lead, merged, begin),
        shown=0 if outer.all() else shown,
        detail=_detail(slices, lead, merged),
    )


def _thinned(
    start: Floats, stop: Floats, slices: Slices, rows: Integers, most: int, length: float
) -> tuple[Array, ...]:
    """What :func:`_decimate` says of some rows, with at most `most` slices; `length`: of the stretch."""
    unit = max(length / UNITS, 1e-9)
    chosen = slices.chosen(rows)
    drawn = _decimate(start[rows], stop[rows], chosen, unit)
    while len(drawn[0]) > most and unit < length:
        unit *= 1.5
        drawn = _decimate(start[rows], stop[rows], chosen, unit)
    first, last, lead, merged, busy = drawn
    return first, last, rows[lead], merged, busy


def _detail(slices: Slices, lead: Integers, merged: Integers) -> list[int]:
    """What each drawn slice says of itself; one that stands for several says nothing."""
    if slices.detail is None:
        return []
    detail = np.where(merged == 1, slices.detail[lead], -1)
    return detail.tolist() if (detail >= 0).any() else []


def _launched(slices: Slices, lead: Integers, merged: Integers, begin: float) -> list[float | None]:
    """When each drawn slice was launched; of those that stand for several this has no meaning."""
    if slices.launched is None:
        return []
    launched = slices.launched[lead] - begin
    known = np.isfinite(launched) & (merged == 1)
    return [
        round(time, 1) if is_known else None for time, is_known in zip(launched.tolist(), known.tolist(), strict=True)
    ]


def _decimate(start: Floats, stop: Floats, slices: Slices, unit: float) -> tuple[Array, ...]:
    """Start, end, leading row, count and time of what is drawn, in order of level and start."""
    length = stop - start
    small = length < unit
    cell = np.floor((start + stop) / 2 / (CELL * unit)).astype(np.int64)
    # Slices that are long enough stand for themselves: a cell of their own, apart from all others.
    cells = int(cell.max()) + 1
    cell = np.where(small, cell, cells + np.arange(len(start)))
    _, group = np.unique(slices.level * (cells + len(start)) + cell, return_inverse=True)
    count = int(group.max()) + 1
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, stop)
    merged, busy = np.bincount(group, minlength=count), np.bincount(group, length, count)
    lead = _leading(group, count, slices, length)
    order = np.lexsort((first, slices.level[lead]))
    return tuple(column[order] for column in (first, last, lead, merged, busy))


def _leading(group: Integers, count: int, slices: Slices, length: Floats) -> Integers:
    """A row of the name with most time in each group, shape [groups]."""
    key = group * (int(slices.label.max()) + 1) + slices.label
    _, first_row, part = np.unique(key, return_index=True, return_inverse=True)
    time = np.bincount(part.ravel(), length)
    order = np.lexsort((-time, group[first_row]))
    owner = group[first_row][order]
    best = np.append(True, owner[1:] != owner[:-1])
    lead = np.zeros(count, dtype=np.int64)
    lead[owner[best]] = first_row[order][best]
    return lead


def _sorted(start: Floats, stop: Floats) -> tuple[Floats, Floats]:
    order = np.argsort(start, kind="stable")
    return start[order], stop[order]


def _rounded(values: Floats) -> list[float]:
    return [round(value, 1) for value in values.tolist()]
