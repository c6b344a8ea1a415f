"""Shapes of loss and validation curves: divergence, spikes, fluctuation, and outliers of step times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from tracelyze.analyzers.statistics.robust import (
    NORMAL_MAD,
    Floats,
    block_medians,
    block_spreads,
    edges,
    kendall_tau,
    median,
    row_medians,
    runs_of,
    spread,
)

FEWEST_TO_DIVERGE = 64  # values: eight blocks of eight, whose medians still show level and noise
FEWEST_TO_RISE = 10  # simulation: with fewer, no rise below 60% stands out from 1% of noise
LAST_VALUES = 5  # values without a new minimum: of noise around a flat end, one run in two to the fifth has as many
_MANY = 512  # values: from here on 64 blocks hold eight values each
_MANY_BLOCKS = 40  # so that five of them are at most an eighth of the curve
_FEWEST_TO_FALL = 4  # blocks from a peak to the end: thirds of fewer are single blocks
_STILL_FALLING = 0.9  # of the middle of the way back: noise of a tenth is no fall
_STEADY = 0.5  # Kendall's tau: three of four pairs of values are in rising order
_FEWEST_TO_FLUCTUATE = 5  # values: three second differences, of which a median can be taken
_FEWEST_WITH_OUTLIERS = 10  # values: a robust spread of fewer is moved by one of them
_FEWEST_TEETH = 10  # values: two falls with a climb before each
_FALLS_BETWEEN = 0.1  # share of the steps between two falls that may decrease: one of ten is noise
_CLIMBS_BETWEEN = 0.5  # share of them that must increase: what stands still most of the time climbs in steps


@dataclass(frozen=True)
class Divergence:
    """A curve that ended far above its earlier minimum. Indices refer to the values handed in."""

    minimum: float
    end: float
    start: float
    margin: float
    turned: int


def divergence(values: Floats, *, rise: float = 0.15, regained: float = 0.1, sigmas: float = 6.0) -> Divergence | None:
    """Whether `values` (shape [steps], finite) left their minimum for good, or None.

    Every block of the last tenth must lie above the lowest level that several blocks of the first nine tenths held (a
    median over three to five of them) by the largest of: `sigmas` robust standard deviations of the differences between
    blocks, half the spread within blocks, the share `rise` of the minimum, and the share `regained` of what had been
    gained since the start (so that the noise around a loss that has converged to nearly nothing is no divergence).
    Curves that reach zero or below have no such minimum, and those on their way back have not left it: None.
    """
    if len(values) < FEWEST_TO_DIVERGE:
        return None
    blocks = 64 if len(values) >= _MANY else max(8, len(values) // 8)
    level = block_medians(values, blocks)
    last = max(2, int(np.ceil(blocks / 10)))
    width = 5 if blocks >= _MANY_BLOCKS else 3  # a dip of a block or two is no level that the curve had reached
    early = row_medians(sliding_window_view(level[:-last], width))
    lowest = int(np.argmin(early)) + width // 2
    minimum, start = float(early.min()), float(level[0])
    if minimum <= 0:
        return None
    bounds = edges(len(values), blocks)
    within = median(block_spreads(values, blocks))
    noise = spread(np.diff(level)) / np.sqrt(2)
    margin = max(sigmas * noise, 0.5 * within, rise * minimum, regained * (start - minimum))
    if not (level[-last:] > minimum + margin).all() or _comes_back(level[lowest:]):
        return None
    return Divergence(minimum, median(level[-last:]), start, margin, int(bounds[lowest + 1]))


def _comes_back(level: Floats) -> bool:
    """Whether the blocks since the minimum are on their way down again: halfway back from their peak, still falling.

    A task that becomes harder in stages, or a peak that is being recovered from, ends so; a loss that collapsed to a
    high plateau does not.
    """
    tail = level[int(np.argmax(level)) :]
    if len(tail) < _FEWEST_TO_FALL:
        return False
    end = median(tail[-max(2, len(tail) // 4) :])
    middle = median(tail[len(tail) // 3 : max(len(tail) // 3 + 1, 2 * len(tail) // 3)])
    return end < (float(level[0]) + float(tail[0])) / 2 and end < _STILL_FALLING * middle


def spikes(values: Floats, *, window: int = 64, sigmas: float = 8.0, factor: float = 1.2, back: int = 8) -> list[int]:
    """Indices of isolated upward spikes: each is the largest of its neighbourhood (`back` values), in order.

    A spike exceeds the median of the `window` values before it by `sigmas` robust standard deviations and by `factor`,
    and one of the `back` values after it does not: a level that was left for good is no spike. Neighbours count as
    one. Robust scale is used because 10% of outliers silence a mean and standard deviation.
    """
    if len(values) <= window:
        return []
    trailing = sliding_window_view(values, window)[:-1]
    merged: list[int] = []
    for index in _candidates(values, window, factor):
        before = trailing[index - window]
        middle = median(before)
        limit = max(middle + sigmas * spread(before), factor * middle)
        if values[index] <= limit or not (values[index + 1 : index + 1 + back] <= limit).any():
            continue
        if merged and index - merged[-1] <= back:
            merged[-1] = index if values[index] > values[merged[-1]] else merged[-1]
        else:
            merged.append(index)
    return merged


def _candidates(values: Floats, window: int, factor: float) -> list[int]:
    """Indices that may be spikes, from the medians of whole blocks: a median per index would cost much more."""
    level = block_medians(values, max(1, len(values) // window))
    row = np.minimum(np.arange(len(values)) * len(level) // len(values), len(level) - 1)
    lowest = np.minimum(level[row], level[np.maximum(row - 1, 0)])
    usual = np.where(lowest > 0, 0.5 * factor * lowest, -np.inf)
    return [index for index in np.flatnonzero(values > usual).tolist() if index >= window]


@dataclass(frozen=True)
class Rise:
    """A curve that turned upwards: its minimum, where that was, and the level of its last five values."""

    minimum: float
    lowest: int
    end: float
    margin: float


def rise(values: Floats, *, sigmas: float = 3.0, share: float = 0.05) -> Rise | None:
    """Whether `values` (shape [evaluations], finite, above zero) ended in a steady rise from their minimum, or None.

    Judged once, at the end: no new minimum among the last five, their median above the minimum by `share` and by a
    margin, and Kendall's tau since the minimum above a half. The minimum of E noisy values lies below their level by
    sqrt(2 ln E) deviations, which the margin adds to `sigmas`. The deviation is the largest of those between values
    one, two and five apart, so that a curve that wanders is not taken for one that rises.
    """
    count = len(values)
    lowest = int(np.argmin(values)) if count else 0
    if count < FEWEST_TO_RISE or lowest >= count - LAST_VALUES or values[lowest] <= 0:
        return None
    apart = (1, 2, 5) if count >= 2 * FEWEST_TO_RISE else (1, 2)
    noise = max(spread(values[lag:] - values[:-lag]) for lag in apart) / np.sqrt(2)
    margin = float(max(noise * (sigmas + np.sqrt(2 * np.log(count))), share * values[lowest]))
    minimum, end = float(values[lowest]), median(values[-LAST_VALUES:])
    if end <= minimum + margin or kendall_tau(block_medians(values[lowest:], 100)) <= _STEADY:
        return None
    return Rise(minimum, lowest, end, margin)


@dataclass(frozen=True)
class Fluctuation:
    """Noise of a curve from one value to the next, in its own unit, and relative to its level."""

    noise: float
    relative: float


def fluctuation(values: Floats) -> Fluctuation | None:
    """Noise of `values` with any smooth trend removed, or None for fewer than five values.

    Second differences take a linear trend out; for independent noise their variance is six times that of the noise.
    """
    values = values[np.isfinite(values)]
    if len(values) < _FEWEST_TO_FLUCTUATE:
        return None
    noise = float(NORMAL_MAD * np.median(np.abs(np.diff(values, n=2))) / np.sqrt(6))
    level = abs(median(values))
    return Fluctuation(noise, noise / level if level > 0 else float("inf") if noise > 0 else 0.0)


def outliers(values: Floats, *, sigmas: float = 8.0, factor: float = 2.0) -> npt.NDArray[np.intp]:
    """Indices of values far above the bulk: by `sigmas` robust standard deviations and by `factor` of the median."""
    finite = values[np.isfinite(values)]
    if len(finite) < _FEWEST_WITH_OUTLIERS:
        return np.empty(0, dtype=np.intp)
    middle = median(finite)
    with np.errstate(invalid="ignore"):
        return np.flatnonzero((values > middle + sigmas * spread(finite)) & (values > factor * middle))


def sawtooth(values: Floats, *, drop: float = 0.5, least: float = math.inf) -> tuple[int, float] | None:
    """Periods and median height of a sawtooth that climbs step by step and falls at once, or None.

    A fall is a decrease by more than `drop` of the whole range, two of them at least, or any by `least`. Between falls
    at least nine of ten steps must not decrease, so that a value that merely fluctuates is none.
    """
    values = values[np.isfinite(values)]
    if len(values) < _FEWEST_TEETH:
        return None
    span = float(values.max() - values.min())
    if span <= 0:
        return None
    steps = np.diff(values)
    falls = np.flatnonzero((steps < -drop * span) | (steps <= -least))
    if not len(falls) or (len(falls) < 2 and steps.min() > -least):
        return None
    rising = steps[np.setdiff1d(np.arange(len(steps)), falls)]
    if (rising < 0).mean() > _FALLS_BETWEEN or (rising > 0).mean() < _CLIMBS_BETWEEN:
        return None
    return len(falls), median(-steps[falls])


def longest_run(flags: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """The longest stretch of true values as a half-open index range; (0, 0) if there is none."""
    return max(runs_of(flags), key=lambda stretch: stretch[1] - stretch[0], default=(0, 0))
