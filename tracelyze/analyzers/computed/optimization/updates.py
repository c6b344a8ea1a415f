"""Sampled weights and their updates (table parameters), tensor by tensor, as far as a rule may judge by them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.once import measured_once

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask, Table

SIXTEEN_BITS = ("bfloat16", "float16")
_OF_TORCH: Final = frozenset((
    "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop",
    "SGD",
))  # fmt: skip
SPARSE = 0.1  # share of elements without a gradient: derived, of ten weights nine have one
SMALL_RATE = 0.1  # of the largest rate: groups of a lower one move by design less than what is looked for


@dataclass(frozen=True)
class SampledUpdates:
    """The measurements of one tensor in which a step should have changed it; arrays of shape [measurements]."""

    parameter: str
    dtype: str
    elements: int
    step: Floats
    lr: Floats
    unchanged: Floats  # share of elements that the step left as they were
    reached: Floats  # the same, of those with a gradient
    since: Floats  # steps since the measurement before
    unchanged_since: Floats  # share of elements that are as they were then
    zeros: Floats  # share of elements without a gradient
    expected: Floats  # size of rate times gradient against the weights, element by element, in the mean
    dimensions: int | None = None  # of the tensor, where they were recorded


@dataclass(frozen=True)
class Pooled:
    """Measurements of several tensors at once; arrays of shape [measurements], tensors weighted by their elements."""

    lost: Floats  # share of the elements with a gradient that the step left as they were
    since: Floats  # steps since the measurement before
    held: Floats  # share of the elements that are as they were then


def pooled(tensors: list[SampledUpdates]) -> Pooled:
    """The measurements that have a measurement before them, all tensors of a step together."""
    sums: dict[float, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for updates in tensors:
        known = ~np.isnan(updates.reached) & ~np.isnan(updates.unchanged_since)
        for step, lost, since, held in zip(
            updates.step[known],
            updates.reached[known],
            updates.since[known],
            updates.unchanged_since[known],
            strict=True,
        ):
            at = sums[float(step)]
            at[0] += updates.elements
            at[1] += updates.elements * lost
            at[2] += updates.elements * held
            at[3] = since
    rows = np.array([[lost / n, since, held / n] for n, lost, held, since in sums.values()]).reshape(-1, 3)
    return Pooled(rows[:, 0], rows[:, 1], rows[:, 2])


def keeps_no_copies(optimization: Optimization) -> bool:
    """Whether the optimizer is known to write each update into the weights themselves. Others may keep copies of more
    bits, round at random, or carry on what was rounded away: their weights keep still about a minimum, too."""
    return optimization.facts.get("name") in _OF_TORCH


def stays_more_than_a_walk(updates: SampledUpdates, sparse: float) -> Floats:
    """How many elements of one tensor are as they were n steps ago, against n steps in random directions that add up:
    where a step changes the share x, one in pi * x * sqrt(n) is back, once x * sqrt(n) is above 1. Of stretches that
    long, the longest last. A tensor whose gradient has zeros holds elements that no step was to change."""
    known = ~np.isnan(updates.reached) & ~np.isnan(updates.unchanged_since)
    lost, held, since = updates.reached[known], updates.unchanged_since[known], updates.since[known]
    if not len(lost) or float(np.median(updates.zeros[known])) > sparse:
        return np.empty(0)
    walked = (1.0 - np.maximum(lost[1:], lost[:-1])) * np.sqrt(since[1:])
    times = np.pi * held[1:] * walked
    order = np.argsort(since[1:], kind="stable")
    return times[order][walked[order] >= 1.0]


@measured_once
def sampled_changes(optimization: Optimization) -> list[SampledUpdates]:
    """Measurements of the tensors of one optimizer, those left out in which no change is to be expected: a rate that is
    zero, unknown or a small part of the largest, no gradient or one that is not finite. Of steps that call a closure,
    as Lightning's do, those of tensors whose gradient was dense before it.

    The step's own gradient is not recorded then. But weights that it leaves as they are were to change, if the
    optimizer is none that may reject what a closure computes.
    """
    parameters = optimization.process.tables["parameters"]
    dense = (parameters["grad_zeros"] <= SPARSE) & keeps_no_copies(optimization)
    return _sampled(optimization, (parameters["closure"] == 0) | dense)


@measured_once
def sampled_beside_moves(optimization: Optimization) -> list[SampledUpdates]:
    """The measurements of `sampled_changes`; but of steps that call a closure, those that change other tensors: what
    rejects a closure's gradients leaves all as they were."""
    parameters = optimization.process.tables["parameters"]
    own = parameters["optimizer"] == optimization.optimizer
    moved = np.isin(parameters["step"], parameters["step"][own & (parameters["unchanged"] < 1.0)])
    dense = (parameters["grad_zeros"] <= SPARSE) & moved
    return _sampled(optimization, (parameters["closure"] == 0) | dense)


def _sampled(optimization: Optimization, judged: Mask) -> list[SampledUpdates]:
    parameters, optimizer = optimization.process.tables["parameters"], optimization.optimizer
    largest = np.nanmax(np.where(parameters["optimizer"] == optimizer, parameters["lr"], 0.0), initial=0.0)
    usable = (
        (parameters["optimizer"] == optimizer)
        & (parameters["grad_finite"] == 1)
        & (parameters["grad_norm"] > 0)
        & judged
        & (np.nan_to_num(parameters["lr"]) > SMALL_RATE * largest)
    )
    names, dtypes = parameters.text("parameter"), parameters.text("dtype")
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index in np.flatnonzero(usable):
        rows[str(names[index]), str(dtypes[index])].append(int(index))
    return [_updates_of(parameters, np.asarray(at), *name) for name, at in rows.items()]


def _updates_of(parameters: Table, at: np.ndarray, parameter: str, dtype: str) -> SampledUpdates:
    lr = parameters["lr"][at]
    with np.errstate(divide="ignore"):
        expected = lr * parameters["grad_norm"][at] / parameters["weight_norm"][at]
    return SampledUpdates(
        parameter,
        dtype,
        int(parameters["elements"][at[0]]),
        parameters["step"][at],
        lr,
        parameters["unchanged"][at],
        parameters["unchanged_reached"][at],
        parameters["since"][at],
        parameters["unchanged_since"][at],
        parameters["grad_zeros"][at],
        expected,
        int(dimensions) if np.isfinite(dimensions := parameters["dimensions"][at[0]]) else None,
    )
