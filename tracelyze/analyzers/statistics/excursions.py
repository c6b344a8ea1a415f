"""Curves of a few evaluations: whether they left their minimum for good, and how often they leapt and came back.

Evaluations are few (five to some hundred) and their losses span orders of magnitude: what is compared are logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tracelyze.analyzers.statistics.robust import Floats, median, row_medians, spread

FEWEST_TO_DEPART = 5  # evaluations: a minimum, two before and two after it
_FEWEST_TO_FALL = 4  # evaluations from a peak to the end: thirds of fewer are single ones
_FEWEST_TO_LEAP = 4  # evaluations: three that make a level, and one that leaps


@dataclass(frozen=True)
class Departure:
    """A curve that left its minimum and ended above it: the minimum, where it was, and the level of the end."""

    minimum: float
    lowest: int
    end: float


@dataclass(frozen=True)
class Excursion:
    """A stretch of a curve far above the level before it: half-open range of indices, that level, and the peak."""

    begin: int
    end: int
    base: float
    peak: float


def departure(values: Floats, *, factor: float, sigmas: float) -> Departure | None:
    """Whether `values` (shape [evaluations], above zero) left their minimum for good, or None.

    Every one of the last fifth, two at least, must lie above the minimum of all before by `factor` and by `sigmas`
    robust deviations from one value to the next. A curve that has come down more than half of its leap (in
    logarithms) and goes on falling is on its way back: None.
    """
    count = len(values)
    last = max(2, int(np.ceil(count / 5)))
    if count < FEWEST_TO_DEPART:
        return None
    logs = np.log(values)
    lowest = int(np.argmin(logs[:-last]))
    noise = spread(np.diff(logs)) / np.sqrt(2)
    if not (logs[-last:] > logs[lowest] + max(np.log(factor), sigmas * noise)).all():
        return None
    tail = logs[lowest + int(np.argmax(logs[lowest:])) :]
    end = median(logs[-last:])
    middle = median(tail[len(tail) // 3 : max(len(tail) // 3 + 1, 2 * len(tail) // 3)])
    if len(tail) >= _FEWEST_TO_FALL and end < (logs[lowest] + tail[0]) / 2 and end < middle:
        return None
    return Departure(float(values[lowest]), lowest, float(np.exp(end)))


def excursions(values: Floats, *, factor: float) -> list[Excursion]:
    """Stretches in which `values` (shape [n], above zero) exceed the lowest level before by `factor`, in order.

    The level is the smallest median of three neighbours so far. A stretch ends where the curve has come back more than
    half of the way, in logarithms; one that does not ends with the curve.
    """
    if len(values) < _FEWEST_TO_LEAP:
        return []
    logs = np.log(values)
    level = np.minimum.accumulate(_median_of_three(logs))
    leaps = np.flatnonzero(logs[3:] > level[: len(logs) - 3] + np.log(factor)) + 3
    found: list[Excursion] = []
    index = 0
    while (place := int(np.searchsorted(leaps, index))) < len(leaps):
        begin = index = int(leaps[place])
        base, peak = float(level[index - 3]), float(logs[index])
        while index < len(logs) and logs[index] > (base + peak) / 2:
            peak = max(peak, float(logs[index]))
            index += 1
        found.append(Excursion(begin, index, float(np.exp(base)), float(np.exp(peak))))
        while index < len(logs) and logs[index] > base + np.log(factor):  # the rest of the way back is no new leap
            index += 1
    return found


_NEIGHBOURS = (-1, 0, 1)  # of which the median is known without sorting


def running_median(values: Floats, width: int) -> Floats:
    """Median of the `width` (odd) values around each one, shape [n]: what fewer than half of them do is gone."""
    padded = np.pad(values, width // 2, mode="edge")
    if width == len(_NEIGHBOURS):
        return _median_of_three(padded)
    return row_medians(sliding_window_view(padded, width))


def _median_of_three(values: Floats) -> Floats:
    """Median of each three neighbours, shape [n - 2]: what numpy's median says, twenty times faster."""
    before, middle, after = values[:-2], values[1:-1], values[2:]
    return np.maximum(np.minimum(before, middle), np.minimum(np.maximum(before, middle), after))


def rises_in_a_row(values: Floats) -> int:
    """How often in a row the last values rose, each above the one before."""
    falls = np.flatnonzero(np.diff(values) <= 0)
    return len(values) - 1 - (int(falls[-1]) + 1 if len(falls) else 0)
