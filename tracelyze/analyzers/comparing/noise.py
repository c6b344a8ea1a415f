"""Whether two means differ by more than the steps that they were taken over differ among themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracelyze.analyzers.recorded.table import Floats
from tracelyze.analyzers.rule import Threshold
from tracelyze.comparison import Change, Significance

SMALLEST: Final = Threshold(
    "smallest",
    0.01,
    "share of the step",
    "derived: clocks and temperature of one device move a step by about a percent; nobody changes a program for less",
)
RECORDINGS: Final = Threshold(
    "recordings",
    0.05,
    "share of the step",
    "measured: recordings of one script on one machine that does nothing else differ by 3%, whatever their steps say",
)
_BLOCKS: Final = 20
"""Steps of a long run are averaged in this many runs of neighbours: what drifts slowly is noise too."""
_FEWEST: Final = 3  # blocks a side: the spread of fewer says nothing
_NORMAL: Final = 1.959964


def blocks(values: Floats) -> Floats:
    """Values of steps in order, shape [steps], as at most 20 means over neighbours, so that they are independent."""
    if len(values) <= _BLOCKS:
        return values
    return np.array([part.mean() for part in np.array_split(values, _BLOCKS)])


def margin(before: Floats, after: Floats) -> float | None:
    """By how much two means may differ by chance in 19 of 20 cases (Welch's t); None for fewer than three values."""
    if min(len(before), len(after)) < _FEWEST:
        return None
    parts = [float(values.var(ddof=1)) / len(values) for values in (before, after)]
    whole = sum(parts)
    if whole <= 0:
        return 0.0
    freedom = whole**2 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, (before, after), strict=True))
    return quantile(freedom) * float(np.sqrt(whole))


def quantile(freedom: float) -> float:
    """The 97.5% quantile of Student's t, by Fisher and Cornish's expansion, good to 1% from three degrees on."""
    z = _NORMAL
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def time_change(
    name: str,
    before: Floats | None,
    after: Floats | None,
    step: float,
    detail: str = "",
    least: float = SMALLEST.default,
) -> Change:
    """The change of a time per step. `before`, `after`: microseconds, shape [steps] of each; `step`: A's mean step;
    `least`: share of that step below which no difference means anything.
    """
    none = np.zeros(0)
    one, two = (none if side is None else blocks(side) for side in (before, after))
    low, high = (float(side.mean()) if len(side) else 0.0 for side in (one, two))
    noise = margin(one if before is not None else np.zeros_like(two), two if after is not None else np.zeros_like(one))
    share = (high - low) / step if step > 0 else None
    return Change(
        name,
        None if before is None else round(low / 1e3, 4),
        None if after is None else round(high / 1e3, 4),
        "ms",
        None if noise is None else round(noise / 1e3, 4),
        significance(high - low, noise, least * step),
        None if share is None else round(share, 4),
        detail,
    )


def significance(difference: float, noise: float | None, smallest: float) -> Significance:
    """What a difference means, given how much of it may be chance and what is too small to matter."""
    if abs(difference) <= smallest:
        return "noise"
    if noise is None:
        return "unknown"
    if abs(difference) <= noise:
        return "noise"
    return "more" if difference > 0 else "less"


def ordered(changes: Sequence[Change], most: int) -> list[Change]:
    """The largest changes first, without those that are nothing on both sides."""
    real = [change for change in changes if (change.before or 0.0) or (change.after or 0.0)]
    return sorted(real, key=lambda change: -abs(change.difference))[:most]
