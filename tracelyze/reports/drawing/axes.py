"""Axes of charts: the range that is shown, where the ticks sit, how their labels read."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.diagnosis import Unit

WIDE: Final = 20
"""Values that span less than this factor are drawn on a linear axis, on which differences look as large as they are."""


@dataclass(frozen=True)
class Axis:
    """A scale from values to fractions (0 at `low`, 1 at `high`), with its ticks."""

    low: float
    high: float
    log: bool
    ticks: list[float]

    def fraction(self, value: float | None) -> float | None:
        """Where `value` sits, 0 to 1 inside the range; None where it cannot be drawn."""
        if value is None or not math.isfinite(value) or (self.log and value <= 0):
            return None
        if self.log:
            low, high, value = math.log10(self.low), math.log10(self.high), math.log10(value)
            return (value - low) / (high - low)
        # Halves, so that a range of almost all floats does not overflow.
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)


def linear(
    values: Iterable[float | None], ticks: int = 5, whole: bool = False, from_zero: bool = False, room: float = 0.0
) -> Axis:
    """An axis over the finite `values`; `whole` keeps the ticks on whole numbers.

    With `from_zero` the axis begins at zero when that wastes no more than half of it, so that a rise looks as large
    as it is. `room` is the share of the range that is left free above and below.
    """
    low, high = _range(values)
    if abs(low) < 1e300 and abs(high) < 1e300:
        margin = (high - low) * room
        low, high = (low if low >= 0 and low - margin < 0 else low - margin), high + margin
    if from_zero and 0 < low <= high / 2:
        low = 0.0
    step = _nice(max((high / ticks - low / ticks), 5e-324))
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    positions = [index * step for index in range(first, last + 1)] if last - first < 50 else [low, high]
    axis = Axis(low, high, False, [])
    inside = [one for one in positions if -1e-9 <= (axis.fraction(one) or 0.0) <= 1 + 1e-9]
    return replace(axis, ticks=inside)


def logarithmic(values: Iterable[float | None], ticks: int = 5) -> Axis | None:
    """A logarithmic axis over the positive `values`, or None when there is no positive value."""
    positive = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    if not positive:
        return None
    low, high = math.log10(min(positive)), math.log10(max(positive))
    if high - low < 0.5:
        low, high = low - 0.25, high + 0.25
    # 10**308.3 is no float any more, 10**-323.4 is zero.
    low = min(max(low, -323.0), 307.5)
    high = min(max(high, low + 0.5), 308.0)
    if high - low < 2:
        wanted = [base * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for base in (1, 2, 5)]
    else:
        step = max(1, math.ceil((high - low) / ticks))
        first = math.ceil(low / step) * step
        wanted = [10.0**power for power in range(first, math.floor(high) + 1, step)]
    inside = [value for value in wanted if 10.0**low * 0.999 <= value <= 10.0**high * 1.001]
    return Axis(10.0**low, 10.0**high, True, inside)


def label(value: float) -> str:
    """A tick in at most six characters or so: `0.25`, `1,500`, `20k`, `1.5M`, `1e-7`."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e12 or size < 1e-3:
        mantissa, exponent = f"{value:.6e}".split("e")
        digits = mantissa.rstrip("0").rstrip(".")
        return f"{digits}e{int(exponent)}"
    for bound, divisor, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= bound:
            return f"{value / divisor:.6g}{suffix}"
    return f"{value:,.6g}"


def tick(value: float, unit: Unit) -> str:
    """A label of the y axis: shares in percent, everything else as a bare number."""
    return f"{label(float(f'{value * 100:.4g}'))}%" if unit == "share" else label(value)


def _range(values: Iterable[float | None]) -> tuple[float, float]:
    finite = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    if high / 2 - low / 2 <= abs(high) * 1e-12:  # one value, or many that are the same on any axis
        margin = abs(high) * 0.05 or 0.5
        return max(low - margin, -sys.float_info.max), min(high + margin, sys.float_info.max)
    return low, high


def _nice(step: float) -> float:
    """The smallest of 1, 2, 2.5, 5 and 10 times a power of ten that is at least `step`."""
    power = 10.0 ** max(math.floor(math.log10(step)), -322)
    for factor in (1.0, 2.0, 2.5, 5.0):
        if step <= factor * power * (1 + 1e-9):
            return factor * power
    return min(10.0 * power, 1e308)
