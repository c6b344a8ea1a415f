"""Two or three values of a short curve that tower above all others: too few for a rate, and too high for a tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.table import Floats

_AROUND = 33
"""Values whose median is the level of the one in the middle, which may be looked at closely around a spike."""


def towering(values: Floats, *, height: float, gap: float, sigmas: float) -> list[int]:
    """Indices of values (shape [n], above zero) beyond `height` times their level that stand apart from all others.

    Apart: the logarithm of the lowest of them over its level is `gap` times that of the highest other one. Each has
    to be back below that at the next value, where one follows: what stays is another level. All or nothing.
    """
    if len(values) < _AROUND or values.min() <= 0:
        return []
    over = np.log(values / statistics.running_median(values, _AROUND))
    high = over > max(float(np.log(height)), sigmas * statistics.spread(over))
    found = np.flatnonzero(high)
    if not len(found) or high[found[found < len(values) - 1] + 1].any():
        return []
    return found.tolist() if float(over[high].min()) >= gap * float(over[~high].max()) else []
