"""Growth that does not end: the straight climb of a leak, and the power law of gradients that pile up.

The rules here judge the *shape* of a climb. A trend test alone does not distinguish a leak from a warm-up, a cache that
fills or a random walk, since all of them trend; only a leak climbs at the same pace in every part of the run.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from tracelyze.analyzers.statistics.robust import (
    Floats,
    block_medians,
    block_minima,
    edges,
    kendall_tau,
    segment_increments,
    theil_sen,
)

RESOLUTIONS = (256, 60, 30)
MIN_CLIMB_STEPS = 50  # steps: warm-up of allocators and caches takes some dozens
FEWEST_TO_GROW = 30  # values: a block of a third of the log axis has some values even at its thin beginning
LEAST_EXPONENT = 0.4  # unrelated gradients add up with exponent 0.5, less what noise takes off
LARGEST_LATE_EXPONENT = 1.4  # aligned gradients add up with exponent 1; an exponential blow-up exceeds 1.4
LEAST_RATIO = 5  # a learning-rate warm-up stays within 2 to 5
_LEAST_LATE_EXPONENT = 0.3  # the later half alone is noisier than the whole
_FEWEST_BLOCKS = 12  # of 24: half of the log axis is empty with fewer
_GOES_ON = 1.3  # exp(0.27), see `_goes_on`; of thirds of a steep climb: 148 runs of a busy machine had not both
_BLOCKS, _IN_ORDER = 24, 0.7  # measured on a climb by 20 times while other programs took half of the processors: 0.77
_FEWEST_EARLY, _FEWEST_LATE = 10, 20  # blocks: half and two thirds of those that are asked for
_STRAIGHT = ((0.6, 0.3), (0.7, 0.1))
"""Evenness of the thirds and smallest of ten increments, over the mean: a straight climb with noise has either pair in
simulations, a saturating one, a staircase and a random walk have neither."""


@dataclass(frozen=True)
class Climb:
    """A straight climb of a floor. `slope` is in units per step; `floor_start` and `floor_end` in units.

    `steadiness` is the mean of nine segment increments over their standard error.
    """

    slope: float
    tau: float
    steadiness: float
    floor_start: float
    floor_end: float
    start: int

    @property
    def ratio(self) -> float:
        """How many times the floor at the start its end is."""
        return self.floor_end / max(self.floor_start, 1e-9)


def warm_up(length: int) -> int:
    """How many first values belong to the warm-up: a tenth, at least five (allocators, caches, compilation)."""
    return max(5, length // 10)


def straight_climb(
    values: Floats, *, tau: float = 0.7, steadiness: float = 8.0, resolutions: tuple[int, ...] = RESOLUTIONS
) -> Climb | None:
    """The steady linear climb of the floor of `values` (shape [steps], one value per step), or None.

    The floor is the minimum of blocks at several resolutions, so that a sawtooth's period fits into a block of one of
    them. It climbs if the order of the blocks is nearly monotone (Kendall tau), the increments between ten segments
    are alike (their mean is many standard errors from zero, none is far below it), and each third of the run climbs
    at nearly the pace of the whole. Warm-up curves, steps, random walks and buffers that fill fail the last two. A
    climb that gets steeper on the way is looked at from there on as well.
    """
    if len(values) < MIN_CLIMB_STEPS or not np.isfinite(values).all():
        return None
    start = warm_up(len(values))
    for begin in (start, _where_it_gets_steeper(values, start)):
        tail = values[begin:]
        if len(tail) < MIN_CLIMB_STEPS - start:
            continue
        for blocks in resolutions:
            climb = _climb(tail, min(blocks, max(20, len(tail) // 4)), begin)
            if climb is not None and climb.tau > tau and climb.steadiness > steadiness:
                return climb
    return None


def steep_climb(values: Floats, ratio: float) -> Climb | None:
    """The climb of the floor of `values` by `ratio` from the first third to the last, however uneven its pace, or None.

    Other programs make the pace of a climb uneven, and steps that climb faster and faster have none. What levels off in
    the last third, or begins in it, is no climb over the run.
    """
    tail = values[warm_up(len(values)) :]
    if len(tail) < MIN_CLIMB_STEPS - warm_up(len(values)) or not np.isfinite(values).all():
        return None
    floor = block_minima(tail, _BLOCKS)
    first, middle, last = (max(float(np.median(part)), 1e-12) for part in np.array_split(floor, 3))
    tau = kendall_tau(floor)
    if last < ratio * first or min(middle / first, last / middle) < _GOES_ON or tau < _IN_ORDER:
        return None
    slope = theil_sen(edges(len(tail), _BLOCKS)[: len(floor)].astype(np.float64), floor)
    ends = block_medians(floor, 10)
    return Climb(slope, tau, 0.0, float(ends[0]), float(ends[-1]), warm_up(len(values)))


def _where_it_gets_steeper(values: Floats, start: int) -> int:
    """Two fifths into the run if the floor climbs faster after that than before, else the end (nothing to look at).

    A heap that is reused at first hides the beginning of a leak. Warm-ups do the opposite: they flatten.
    """
    cut = max(start, 2 * len(values) // 5)
    early, late = block_minima(values[start:cut], 20), block_minima(values[cut:], 30)
    if len(early) < _FEWEST_EARLY or len(late) < _FEWEST_LATE:
        return len(values)
    pace = [theil_sen(np.linspace(0, n, len(f)), f) for n, f in ((cut - start, early), (len(values) - cut, late))]
    return cut if pace[1] > pace[0] > 0 else len(values)


def _climb(tail: Floats, blocks: int, start: int) -> Climb | None:
    """The climb of the floor at one resolution if its increments are even enough, else None."""
    floor = block_minima(tail, blocks)
    bounds = edges(len(tail), blocks)
    x = bounds[:-1].astype(np.float64)
    slope = theil_sen(x, floor)
    if slope <= 0:
        return None
    increments = segment_increments(floor, 10)
    mean = float(increments.mean())
    if mean <= 0:
        return None
    deviation = float(increments.std(ddof=1))
    tiny = 1e-12 * mean
    steadiness = mean / (max(deviation, tiny) / np.sqrt(len(increments)))
    smallest = float(increments.min()) / mean
    thirds = np.array_split(np.arange(len(floor)), 3)
    evenness = min(theil_sen(x[part], floor[part]) for part in thirds) / slope
    if not any(evenness > even and smallest > small for even, small in _STRAIGHT):
        return None
    ends = block_medians(floor, 10)
    return Climb(slope, kendall_tau(floor), float(steadiness), float(ends[0]), float(ends[-1]), start)


def slope_interval(values: Floats, *, draws: int = 200, segments: int = 10) -> tuple[float, float]:
    """95% interval of the slope of a climbing floor, in units per step.

    Residuals of the floor around its Theil-Sen line are resampled in whole segments, because neighbouring values of
    memory are not independent. Deterministic (fixed seed).
    """
    tail = values[warm_up(len(values)) :]
    blocks = min(60, max(20, len(tail) // 4))
    floor = block_minima(tail, blocks)
    x = edges(len(tail), blocks)[: len(floor)].astype(np.float64)
    slope = theil_sen(x, floor)
    line = slope * x + np.median(floor - slope * x)
    residuals = floor - line
    length = max(1, len(floor) // segments)
    random = np.random.default_rng(0)
    first, second = np.triu_indices(len(floor), k=1)
    run = x[second] - x[first]
    slopes = np.empty(draws)
    for draw in range(draws):
        starts = random.integers(0, len(floor) - length + 1, size=len(floor) // length + 1)
        picked = np.concatenate([residuals[s : s + length] for s in starts])[: len(floor)]
        sample = line + picked
        slopes[draw] = np.median((sample[second] - sample[first]) / run)
    low, high = np.percentile(slopes, (2.5, 97.5))
    return float(low), float(high)


@dataclass(frozen=True)
class PowerLaw:
    """Growth of a positive series like steps ** exponent. `ratio` is its end over its beginning."""

    exponent: float
    late_exponent: float
    ratio: float


def power_law_growth(steps: Floats, values: Floats) -> PowerLaw | None:
    """Growth like a power of the step from the very start to the end, or None. Both arrays have shape [points].

    Gradients that nobody clears add up: aligned ones grow like the step, unrelated ones like its square root. Medians
    of 24 blocks, equally wide in log(step), are compared on log-log axes. An exponent of at most 1.4 on the later half
    excludes an exponential blow-up; that all of eight groups rise excludes a warm-up that levels off.
    """
    usable = np.isfinite(values) & (values > 0) & (steps > 0)
    steps, values = steps[usable], values[usable]
    if len(values) < FEWEST_TO_GROW:
        return None
    bounds = np.unique(np.searchsorted(np.log(steps), np.linspace(np.log(steps[0]), np.log(steps[-1]), 25)))
    bounds[-1] = len(steps)
    pairs = [(a, b) for a, b in itertools.pairwise(bounds) if b > a]
    if len(pairs) < _FEWEST_BLOCKS:
        return None
    x = np.array([np.median(np.log(steps[a:b])) for a, b in pairs])
    y = np.array([np.median(np.log(values[a:b])) for a, b in pairs])
    half = len(x) // 2
    exponent, late = theil_sen(x, y), theil_sen(x[half:], y[half:])
    ratio = float(np.exp(np.median(y[-3:]) - np.median(y[:3])))
    rising = bool((segment_increments(y, 8) > 0).all())
    grows = (
        exponent >= LEAST_EXPONENT and _LEAST_LATE_EXPONENT <= late <= LARGEST_LATE_EXPONENT and ratio >= LEAST_RATIO
    )
    if grows and rising and _goes_on(values):
        return PowerLaw(exponent, late, ratio)
    return None


def _goes_on(values: Floats) -> bool:
    """Whether the last tenth lies above the third tenth as t^0.4 would, by half (0.4 ln(9.5 / 2.5) / 2 = 0.27).

    In blocks of equal logarithm a warm-up over the first fifth of the run leaves few flat ones, and noise hides those.
    """
    tenth = max(1, len(values) // 10)
    return float(np.median(values[-tenth:])) >= _GOES_ON * float(np.median(values[2 * tenth : 3 * tenth]))
