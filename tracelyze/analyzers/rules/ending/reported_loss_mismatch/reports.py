"""Training losses as the program logs them, against the losses of the steps that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats, Mask

TOLERANCE = 0.02  # by which a value may lie outside of the losses that it averages: rounding, a smaller last batch


@dataclass(frozen=True)
class Series:
    """The values of one name: arrays of shape [values]. `done`: steps that were done when each was logged."""

    name: str
    logger: str
    done: Floats
    values: Floats


@dataclass(frozen=True)
class Match:
    """What the values are a multiple of: the "last" loss, the "mean" since the value before, the "sum" of all, as
    "growth" a running sum that begins anew at times, or, as "epochs", the sum of all over the batches of this epoch."""

    kind: str
    factor: float
    spread: float


def beside(process: Process) -> int:
    """How many optimizers step together, each time on one loss; 0 where they have losses of their own."""
    if not process.optimizations or (len(process.optimizations) > 1 and len(process.trainings) > 1):
        return 0
    first, *others = process.optimizations
    losses = first.steps["loss"]
    alike = all(np.array_equal(one.steps["loss"], losses, equal_nan=True) for one in others)
    return 1 + len(others) if alike and (not others or np.isfinite(losses).all()) else 0


def of(process: Process) -> list[Series]:
    """The training losses that were handed to loggers, by name, with the steps that each optimizer had done."""
    table = process.scalars
    chosen = table.where(table.matches("phase", "reported") & np.isfinite(table["value"]))
    rows: dict[tuple[str, str], list[int]] = {}
    for index, (name, logger) in enumerate(zip(chosen.text("name"), chosen.text("logger"), strict=True)):
        rows.setdefault((str(name), str(logger)), []).append(index)
    done = chosen["step"] // max(1, beside(process))
    return [Series(name, logger, done[at], chosen["value"][at]) for (name, logger), at in rows.items()]


def among(series: Series, losses: Floats) -> float:
    """Share of the values that lie between the lowest and the highest loss so far, as any mean or smoothing does."""
    inside = 0
    for done, value in zip(series.done, series.values, strict=True):
        before = losses[: int(done) + 1]
        before = before[np.isfinite(before)]
        if len(before):
            slack = TOLERANCE * abs(value)
            inside += bool(before.min() - slack <= value <= before.max() + slack)
    return inside / len(series.values)


def growing(series: Series, losses: Floats, spread: float, fewest: float) -> Match | None:
    """The running sum that the values are a constant multiple of, although it begins anew at times, with an epoch say:
    at least `fewest` values, and half of all, add to the value before what the losses in between sum up to."""
    sums = np.concatenate(([0.0], np.cumsum(np.nan_to_num(losses))))
    added = np.diff(series.values)
    for ahead in (0, 1):
        ends = np.minimum(series.done.astype(np.int64) + ahead, len(losses))
        between = np.diff(sums[ends])
        rises = (added > 0) & (between > 0)
        if rises.sum() < max(fewest, len(added) / 2) or (added[~rises] > 0).any():
            continue
        ratios = added[rises] / between[rises]
        usual = float(np.median(ratios))
        if float(np.ptp(ratios)) <= spread * usual:
            return Match("growth", usual, float(np.ptp(ratios)) / usual)
    return None


def over_epochs(series: Series, losses: Floats, begins: Mask, spread: float, fewest: float) -> Match | None:
    """The sum of all losses, divided by the number of those in the epoch so far, that the values are a constant
    multiple of, at least `fewest` of them behind the first epoch. `begins`: steps that begin one, shape [steps]."""
    sums = np.concatenate(([0.0], np.cumsum(np.nan_to_num(losses))))
    starts = np.flatnonzero(begins)
    if len(starts) < 2 or starts[0] != 0:
        return None
    for ahead in (0, 1):
        ends = np.minimum(series.done.astype(np.int64) + ahead, len(losses))
        if (ends < 1).any() or (ends > starts[1]).sum() < fewest:
            continue
        batches = ends - starts[np.searchsorted(starts, ends - 1, side="right") - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = series.values * batches / sums[ends]
        usual = float(np.median(ratios))
        if np.isfinite(ratios).all() and usual > 0 and float(np.ptp(ratios)) <= spread * usual:
            return Match("epochs", usual, float(np.ptp(ratios)) / usual)
    return None


def multiple(series: Series, losses: Floats, spread: float) -> Match | None:
    """What the values are a constant multiple of, to within a share of `spread`; None if of nothing.

    A loop logs after its step or before it: then the loss of the step that is to come is the last one.
    """
    sums = np.concatenate(([0.0], np.cumsum(np.nan_to_num(losses))))
    for ahead in (0, 1):
        ends = np.minimum(series.done.astype(np.int64) + ahead, len(losses))
        begins = np.concatenate(([0], ends[:-1]))
        if (ends <= begins).any():
            continue
        means = (sums[ends] - sums[begins]) / (ends - begins)
        for kind, reference in (("mean", means), ("last", losses[ends - 1]), ("sum", sums[ends])):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = series.values / reference
            usual = float(np.median(ratios))
            if np.isfinite(ratios).all() and usual > 0 and float(np.ptp(ratios)) <= spread * usual:
                return Match(kind, usual, float(np.ptp(ratios)) / usual)
    return None


def micro_batches(process: Process, match: Match, spread: float) -> int:
    """The number of micro-batches of a step, where the logged loss is smaller than the mean by just that; else 0."""
    backwards = process.longest.steps["backwards"]
    parts = float(np.median(backwards)) if len(backwards) else 0.0
    return int(parts) if parts > 1 and abs(match.factor * parts - 1) <= spread else 0
