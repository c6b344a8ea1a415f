"""Two or three values of a short curve that tower above all others: too few for a rate, and too high for a tail."""

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
    if len(values) < _AROUND or values.min() <= 0 or not _any_towers(values, height):
        return []
    middle = statistics.row_medians(sliding_window_view(values, _AROUND))
    over = np.log(values / middle[np.clip(np.arange(len(values)) - _AROUND // 2, 0, len(middle) - 1)])
    high = over > max(float(np.log(height)), sigmas * statistics.spread(over))
    found = np.flatnonzero(high)
    if not len(found) or (np.diff(steps[found]) == 1).any():
        return []
    return found.tolist() if float(over[high].min()) >= gap * float(over[~high].max()) else []


def _any_towers(values: Floats, height: float) -> bool:
    """Whether any value is beyond `height` times its level. Levels are taken of those alone that may be."""
    windows = sliding_window_view(values, _AROUND)
    begins = np.clip(np.arange(len(values)) - _AROUND // 2, 0, len(windows) - 1)
    blocks = np.minimum.reduceat(values, np.arange(0, len(values), _AROUND))
    lowest = np.minimum(blocks, np.minimum(np.roll(blocks, 1), np.roll(blocks, -1)))  # no level nearby is below that
    maybe = np.flatnonzero(values > height * np.repeat(lowest, _AROUND)[: len(values)])
    return bool(len(maybe)) and bool((values[maybe] > height * statistics.row_medians(windows[begins[maybe]])).any())
