"""Spikes of a short curve: a few that stand apart by a factor, or two or three that tower above all others, too few for
a rate and too high for a tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tracelyze.analyzers import statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracelyze.analyzers.recorded.table import Floats

    Rows = NDArray[np.intp]

_AROUND = 33
"""Values whose median is the level of the one in the middle, which may be looked at closely around a spike."""


def towering(values: Floats, steps: Rows, *, height: float, gap: float, sigmas: float) -> list[int]:
    """Indices of values (shape [n], above zero, of these `steps`) beyond `height` times their level, apart from all
    others.

    Apart: the logarithm of the lowest of them over its level is `gap` times that of the highest other one. Each has
    to be back below that at the next step, where that was measured: what stays is another level, and where something is
    out of the ordinary every step is looked at. All or nothing.
    """
    if len(values) < _AROUND or values.min() <= 0 or not any_towers(values, height):
        return []
    over = _over_level(values)
    high = over > max(float(np.log(height)), sigmas * statistics.spread(over))
    found = np.flatnonzero(high)
    if not len(found) or (np.diff(steps[found]) == 1).any():
        return []
    return found.tolist() if float(over[high].min()) >= gap * float(over[~high].max()) else []


def isolated(values: Floats, steps: Rows, *, factor: float, sigmas: float) -> list[int]:
    """Indices of values (shape [n], above zero, of these `steps`) beyond `factor` times their level, and by `sigmas`
    deviations of the logarithm, each of which is back at the next step.

    Of a short run not every step is looked at, but each is that is out of the ordinary: spikes may then be neighbours
    among the values, far apart as they are. Heavy tails widen the deviation of the logarithm with them.
    """
    if len(values) < _AROUND or values.min() <= 0:
        return []
    over = _over_level(values)
    found = np.flatnonzero(over > max(float(np.log(factor)), sigmas * statistics.spread(over)))
    return [] if (np.diff(steps[found]) == 1).any() else found.tolist()


def _over_level(values: Floats) -> Floats:
    """The logarithm of each value over the median of those around it."""
    middle = statistics.row_medians(sliding_window_view(values, _AROUND))
    around = middle[np.clip(np.arange(len(values)) - _AROUND // 2, 0, len(middle) - 1)]
    return np.asarray(np.log(values / around))


def any_towers(values: Floats, height: float) -> bool:
    """Whether any value is beyond `height` times its level. Levels are taken of those alone that may be."""
    windows = sliding_window_view(values, _AROUND)
    begins = np.clip(np.arange(len(values)) - _AROUND // 2, 0, len(windows) - 1)
    blocks = np.minimum.reduceat(values, np.arange(0, len(values), _AROUND))
    lowest = np.minimum(blocks, np.minimum(np.roll(blocks, 1), np.roll(blocks, -1)))  # no level nearby is below that
    maybe = np.flatnonzero(values > height * np.repeat(lowest, _AROUND)[: len(values)])
    return bool(len(maybe)) and bool((values[maybe] > height * statistics.row_medians(windows[begins[maybe]])).any())
