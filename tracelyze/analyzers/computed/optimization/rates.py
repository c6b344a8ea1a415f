"""Whether the learning rate explains a loss that blew up: too high from the first step, or raised beyond the limit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import predictions
from tracelyze.analyzers.computed.optimization import one_batch, ratios
from tracelyze.analyzers.computed.schedules import endless_warmups
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats

SMOOTH = 8  # losses
WEIGHT_AND_BIAS = 2  # tensors of a single layer
FEWEST_LOSSES = 3  # two losses show a change, three whether it goes on
_RAISED_WITHIN = 3 * SMOOTH  # losses: a fall, its end, and what came after it
_FELL = 0.9  # of the first losses: a loss that never fell by a tenth was not trained at the lower rate
STABLE = 0.9  # share of the steps before the minimum whose rate was stable


@dataclass(frozen=True)
class Curve:
    """Losses and rates of the steps that updated something, up to the first loss that is no number any more.

    `rows`: the steps; `lost`: such a loss followed.
    """

    rows: np.ndarray
    loss: Floats
    rate: Floats
    lost: bool


@dataclass(frozen=True)
class TooHigh:
    """`first`: row from which on the loss suffered (known to within some steps), `raised`: row of the first step at a
    rate that is too high. `stable`: a rate at which the loss fell, if any."""

    first: int
    raised: int
    rate: float
    stable: float | None
    highest: float  # loss of a step, like the lowest: not smoothed
    lowest: float
    update: float | None = None  # share of a weight's norm that one update made up
    stuck: bool = False  # the loss does not grow on and on, but it does not fall either
    partly: float | None = None  # or it fell to this share of its start, and no further
    astray: tuple[int, ...] = ()  # or it was above twice its start in these rows, and came down from there
    at_once: bool = True  # it grew from the first steps on
    above: bool = True  # nor ever gets below its start for good
    climbs: bool = False  # it is higher than its lowest, at a rate that a warm-up without an end keeps raising
    constant: bool = False  # and the model gives one answer to everything
    stable_below: float | None = None  # of a loss that multiplies at each step: the rate at which it would not

    def suffered(self, steps: int) -> np.ndarray:
        """The steps of the training that were lost by it."""
        rows = np.arange(steps)
        return np.isin(rows, self.astray) if self.astray else rows >= self.first

    @property
    def lower(self) -> float:
        """A rate to try."""
        return min(self.rate / 10, (self.stable_below or self.rate) / 2)


def curve(optimization: Optimization) -> Curve:
    """The losses with the rates that their steps used."""
    steps = optimization.steps
    rows = np.flatnonzero(steps.known("loss") & ~timing.skipped(optimization) & np.isfinite(steps["lr"]))
    loss = steps["loss"][rows]
    broken = np.flatnonzero(~np.isfinite(loss))
    until = int(broken[0]) if len(broken) else len(loss)
    return Curve(rows[:until], loss[:until], steps["lr"][rows[:until]], len(broken) > 0)


def from_the_start(optimization: Optimization, seen: Curve, limits: Limits) -> TooHigh | None:
    """The loss grows from its first or third step on, by updates as large as the weights.

    A run that is lost within a handful of steps may end before its weights are measured. There, losses of which each is
    a multiple of the one before tell the same.
    """
    loss = seen.loss
    if len(loss) < FEWEST_LOSSES or loss[0] <= 0:
        return None
    beyond = np.flatnonzero(loss >= limits["blow_up"] * loss[0])
    if not len(beyond) or beyond[0] > limits["early"]:
        return None
    grown = int(beyond[0])
    lowest = int(np.argmin(loss))
    rises = np.diff(loss[lowest : max(grown + 1, lowest + 2)]) > 0
    updates = _updates(optimization, timing.step_at(optimization, int(seen.rows[grown])) + 1)
    at_once = lowest <= 2 and rises.mean() >= limits["rises"]
    long_before = updates[: len(updates) // 2 + 1]
    if not at_once and (grown < SMOOTH or not _often(long_before, limits["update"], limits)):
        return None  # it fell for a while, by updates that were sound, or too few of them
    rate = _highest_rate(seen, grown + 1)
    stable_below = _stable_below(loss[lowest:], rate, limits) if at_once else None
    update = float(updates.max()) if len(updates) else None
    if stable_below is None and (update is None or update < limits["update"]):
        return None
    # Where it fell at first, the first update shows in the loss of the step after it.
    begin = int(seen.rows[0])
    first = begin if at_once else int(seen.rows[1])
    # A model that has blown up meets batches of loss 0 by chance: the lowest is that of the steps before.
    highest, lowest_loss = float(loss.max()), float(loss[: grown + 1].min())
    return TooHigh(first, begin, rate, None, highest, lowest_loss, update, at_once=at_once, stable_below=stable_below)


def _stable_below(loss: Floats, rate: float, limits: Limits) -> float | None:
    """The rate up to which the first losses would not have grown, if each of them is a multiple of the one before.

    Gradient descent multiplies the distance from the minimum of a quadratic by 1 - rate * curvature, and the loss by
    the square of that; it is stable below 2 / curvature.
    """
    steps = int(limits["steep"])
    first = loss[: steps + 1]
    if len(first) <= steps:
        return None
    growth = first[1:] / first[:-1]
    if not (growth >= limits["blow_up"]).all():
        return None
    return 2 * rate / (1 + float(np.sqrt(growth.max())))


def stuck(optimization: Optimization, seen: Curve, limits: Limits) -> TooHigh | None:
    """The loss never gets below its start for good, after first updates as large as the weights: it was thrown out of
    the region in which the model can be trained, and what follows (dead units, saturation) may even look calm.

    It may have begun to fall, for some steps, or have burst to a multiple of its start and come back to it. A training
    that goes on with weights which the process had trained before starts low: a rise says nothing of its rate.
    """
    loss = seen.loss
    if len(loss) < limits["early"] or loss[0] <= 0 or seen.lost or _goes_on(optimization):
        return None
    if _broken_by_a_batch(loss) or not _left_its_start(optimization, loss, limits):
        return None
    reached = statistics.median(loss[len(loss) // 2 :]) / float(loss[0])
    levels = statistics.block_medians(loss, max(1, len(loss) // SMOOTH))
    lowest = float(levels.min()) / float(loss[0])
    early = loss[: int(limits["early"])]
    until = timing.step_at(optimization, int(seen.rows[0])) + int(limits["early"])
    updates = _updates(optimization, until)
    thrown = min(reached, lowest / STABLE) >= limits["regained"] and _often(updates, limits["update"], limits)
    # Steps between two measurements are seen by what they have made of the weights.
    large = _often(updates, limits["large"], limits) or ratios.growth(optimization, until) >= limits["grown"]
    thrown |= reached >= limits["hardly"] and lowest >= limits["ever"] and large
    burst = float(early.max()) >= limits["burst"] * float(loss[0])
    thrown |= burst and reached >= limits["ever"] and _often(updates, limits["large"], limits)
    fell_early = int(levels.argmin()) * SMOOTH < len(early)
    thrown |= fell_early and reached >= limits["hardly"] and _often(updates, limits["update"], limits)
    growth = ratios.growth(optimization, until)
    partly = None if thrown else _partly(loss, updates, growth, limits)
    astray = _astray(seen, updates, growth, limits) if burst and not thrown and partly is None else ()
    if not thrown and partly is None and not astray:
        return None
    largest = float(updates.max())
    # What the first update does shows at the step after it; gradients that are never cleared count from there, too.
    begin, shown = int(seen.rows[0]), int(seen.rows[1])
    rate, highest, above = _highest_rate(seen, int(limits["early"])), float(loss.max()), reached >= limits["regained"]
    lowest_loss = float(loss.min())
    found = TooHigh(shown, begin, rate, None, highest, lowest_loss, largest, stuck=True, partly=partly, above=above)
    return replace(found, astray=astray)


def _partly(loss: Floats, updates: Floats, growth: float, limits: Limits) -> float | None:
    """The share of its start at which the loss ended, if that is high, and the first updates have replaced the weights:
    they made the loss burst, by more than it varies later, and the weights grow to a multiple."""
    ended = statistics.median(loss[-len(loss) // 4 :]) / float(loss[0])
    start = float(loss[:SMOOTH].max())
    burst = start >= limits["doubled"] * max(float(loss[0]), float(loss[len(loss) // 2 :].max()))
    replaced = growth >= limits["outgrown"] and bool((updates >= limits["large"]).any())
    return ended if burst and replaced and ended >= limits["half"] else None


def _astray(seen: Curve, updates: Floats, growth: float, limits: Limits) -> tuple[int, ...]:
    """The rows in which the loss was above twice its start, after first updates that replaced the weights; none where
    they are few."""
    rows = seen.rows[seen.loss >= limits["doubled"] * float(seen.loss[0])]
    replaced = growth >= limits["outgrown"] and bool((updates >= limits["large"]).any())
    return tuple(rows.tolist()) if replaced and len(rows) >= limits["astray"] * len(seen.loss) else ()


def _broken_by_a_batch(loss: Floats) -> bool:
    """Whether the loss fell until one batch, whose loss towers over all before: the rate was sound up to there."""
    at = one_batch.leap(loss)
    if at is None or at < 2 * SMOOTH:
        return False
    return statistics.median(loss[at - SMOOTH : at]) < _FELL * statistics.median(loss[:SMOOTH])


def _left_its_start(optimization: Optimization, loss: Floats, limits: Limits) -> bool:
    """Whether the loss ever rose, if only above what it had come down to. One that never does began at that of a guess
    and stays there: inputs that say nothing of the targets look so."""
    early = loss[: int(limits["early"])]
    if is_one_layer(optimization):
        return float(early.max()) >= limits["doubled"] * float(loss[0])
    return bool((early > limits["rose"] * np.minimum.accumulate(early)).any())


def is_one_layer(optimization: Optimization) -> bool:
    """Whether a single layer trains, such as a probe of features: it has no region to be thrown out of, and no unit
    that could die. A rate that is too high for it makes the loss a multiple of its start."""
    tensors = optimization.steps["parameters"]
    return bool(np.isfinite(tensors).any() and np.nanmax(tensors) <= WEIGHT_AND_BIAS)


def _goes_on(optimization: Optimization) -> bool:
    """Whether weights were loaded before the first step, in a process that had trained before."""
    first = optimization.steps["time"][0]
    loads = optimization.process.tables["loads"].records()
    return any(row["step"] and row["time"] is not None and row["time"] <= first for row in loads)


def overwritten(optimization: Optimization, seen: Curve, limits: Limits) -> TooHigh | None:
    """First updates that left nothing of the weights as they were drawn, of a model that ends with one answer to
    everything. Its loss is that of the best constant, which may be far below a first loss of large scores."""
    loss = seen.loss
    if len(loss) < limits["early"] or seen.lost or is_one_layer(optimization):
        return None
    updates = _updates(optimization, timing.step_at(optimization, int(seen.rows[0])) + int(limits["early"]))
    if not _often(updates, limits["large"], limits):
        return None
    measured = Limits(predictions.THRESHOLDS)
    if len(loss) < measured["steps"]:
        return None
    constant, _ = predictions.constant(optimization.process, optimization, measured)
    if constant is None or constant.part is not None:  # a term that another one swamps
        return None
    begin, shown = int(seen.rows[0]), int(seen.rows[1])
    rate, largest, lowest = _highest_rate(seen, int(limits["early"])), float(loss.max()), float(loss.min())
    return TooHigh(shown, begin, rate, None, largest, lowest, float(updates.max()), stuck=True, constant=True)


def raised(optimization: Optimization, seen: Curve, limits: Limits) -> TooHigh | None:
    """The loss fell while the rate was low, and blew up after the rate had been raised to a multiple of that. Or it
    rose, and the rate comes of a warm-up that never ends, as the script's own line shows."""
    loss, rate = seen.loss, seen.rate
    if len(loss) < _RAISED_WITHIN or float(np.quantile(loss, 0.1)) <= 0:
        return None
    smooth = np.convolve(loss, np.full(SMOOTH, 1 / SMOOTH), "valid")
    lowest = int(np.argmin(smooth)) + SMOOTH - 1
    level = float(smooth.min())
    if lowest < 2 * SMOOTH or level >= _FELL * statistics.median(loss[:SMOOTH]):
        return None
    ended = loss[-2:].min() >= limits["ended"] * level  # of a program that stopped at once, or lost its numbers
    diverged = statistics.divergence(loss)
    stable = float(np.quantile(rate[: lowest + 1], STABLE))
    lost = ended or diverged is not None or _outrun(seen, lowest, level, limits["outrun"] * stable, limits)
    climbs = not lost and _outrun(seen, lowest, level, limits["raised"] * stable, limits)
    if not lost and not (climbs and endless_warmups.endless(optimization, stable)):
        return None
    later = rate[lowest - SMOOTH + 1 :]
    if stable <= 0 or later.max() <= limits["raised"] * stable:
        return None
    higher = int(np.argmax(rate > stable))
    first = higher if diverged is None else min(higher, diverged.turned)
    before, after = float(loss[: lowest + 1].min()), float(loss[lowest:].max())  # as the chart draws them
    highest = float(later.max())
    return TooHigh(int(seen.rows[first]), int(seen.rows[higher]), highest, stable, after, before, climbs=climbs)


def _outrun(seen: Curve, lowest: int, level: float, highest: float, limits: Limits) -> bool:
    """Whether the rate has grown from the lowest loss to the last step, to `highest` or more, and the loss of the last
    quarter is a multiple of that lowest one. It may come down from a peak meanwhile: at such a rate, not for good."""
    rate, late = seen.rate[lowest:], seen.loss[-len(seen.loss) // 4 :]
    grown = bool((np.diff(rate) >= 0).all()) and rate[-1] >= highest
    return grown and statistics.median(late) >= limits["risen"] * level


def _highest_rate(seen: Curve, steps: int) -> float:
    """The highest rate in the first steps. Not that of the first step alone: a warm-up begins at zero."""
    return float(seen.rate[:steps].max())


def _often(updates: Floats, size: float, limits: Limits) -> bool:
    return int((updates >= size).sum()) >= limits["looks"]


def _updates(optimization: Optimization, until: float) -> Floats:
    """Updates in norms of the weight at the looks up to a step, as far as they are numbers."""
    seen = ratios.of(optimization)
    return seen.update[(seen.step <= until) & np.isfinite(seen.update)]
