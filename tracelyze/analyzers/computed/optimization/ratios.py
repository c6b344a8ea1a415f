"""Updates and gradients in norms of the weights they belong to, as sampled, and how far they lead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.once import measured_once
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Threshold

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits

FEWEST = 16  # elements of a tensor whose update says something
TENTHS = 10
LARGER = 3.0  # times the median of the other measured updates: gradients of a settled training vary by less
TRAVELLED = Threshold(
    "travelled",
    0.01,
    "",
    "derived: weights that move by less than a hundredth of their size compute nearly what they computed before",
)
FALLS = Threshold("falls", 0.05, "share", "of the first loss; what learns at all loses more within a hundred steps")
STEPS = Threshold("steps", 60, "steps", "before that a warm-up explains small updates")
MEASUREMENTS = Threshold("looks", 4, "measurements", "a single one may meet an unusual step")


@dataclass(frozen=True)
class Ratios:
    """One entry for each step that was looked at, in order: medians over the tensors of an optimizer."""

    step: Floats
    update: Floats  # norm of the update over that of the weight
    gradient: Floats  # norm of the gradient, as the step found it, over that of the weight
    gain: Floats  # norm of the update over rate times gradient: 1 for plain gradient descent


@measured_once
def of(optimization: Optimization) -> Ratios:
    """The looks at tensors with FEWEST elements or more, and with weights that are not zero."""
    table = optimization.process.tables["parameters"]
    weight = table["weight_norm"]
    usable = (table["optimizer"] == optimization.optimizer) & (table["elements"] >= FEWEST) & (weight > 0)
    usable &= np.isfinite(table["update_norm"])
    with np.errstate(divide="ignore", invalid="ignore"):
        update, gradient = table["update_norm"] / weight, table["grad_norm"] / weight
        gain = table["update_norm"] / (table["lr"] * table["grad_norm"])
    steps = np.unique(table["step"][usable])
    rows = [usable & (table["step"] == step) for step in steps]

    def medians(values: Floats) -> Floats:
        return np.array([statistics.median(values[at][~np.isnan(values[at])]) for at in rows], dtype=np.float64)

    return Ratios(steps, medians(update), medians(gradient), medians(gain))


@dataclass(frozen=True)
class LargerUpdate:
    """An update that was measured, by how many times it is above the median of the others."""

    update: float
    times: float


def larger_update(optimization: Optimization, row: int) -> LargerUpdate | None:
    """The update of this row of the steps, if it was measured and is LARGER times the others; None otherwise."""
    seen = of(optimization)
    here = seen.step == (timing.step_at(optimization, row) if 0 <= row < len(optimization.steps) else -1)
    others = seen.update[~here & np.isfinite(seen.update)]
    if not here.any() or len(others) < MEASUREMENTS.default:
        return None
    update, usual = float(seen.update[here][0]), float(np.median(others))
    return LargerUpdate(update, update / usual) if usual > 0 and update >= LARGER * usual else None


def growth(optimization: Optimization, until: float) -> float:
    """How many times as large as at the first measurement the weights are at this step or before: the norm of all
    tensors that were looked at both times. 1 where there was one measurement."""
    table = optimization.process.tables["parameters"]
    usable = (
        (table["optimizer"] == optimization.optimizer) & (table["step"] <= until) & np.isfinite(table["weight_norm"])
    )
    norms: dict[float, dict[str | None, float]] = {}
    names = table.text("parameter")
    for row in np.flatnonzero(usable):
        norms.setdefault(float(table["step"][row]), {})[names[row]] = float(table["weight_norm"][row])
    if not norms:
        return 1.0
    first = norms[min(norms)]
    found = [1.0]
    for later in norms.values():
        both = first.keys() & later.keys()
        before = sum(first[name] ** 2 for name in both)
        found.append((sum(later[name] ** 2 for name in both) / before) ** 0.5 if before > 0 else 1.0)
    return max(found)


def travelled(optimization: Optimization, seen: Ratios) -> float:
    """How far all steps together may lead, if each went in the same direction: in norms of the weights.

    That of a typical tensor, as each step's is the median over the tensors: others may get several times as far."""
    steps = timing.numbers(optimization)[~timing.skipped(optimization)]
    return float(np.interp(steps, seen.step, seen.update).sum())


def fall(optimization: Optimization) -> float | None:
    """By which share the loss fell from the first tenth of the run to the last one; None where it is not positive."""
    first, last = _ends(optimization)
    if not len(first) or not len(last) or np.median(first) <= 0:
        return None
    return 1.0 - float(np.median(last)) / float(np.median(first))


def _noise_of_fall(optimization: Optimization) -> float:
    """Twice the standard error of :func:`fall`. That of the median of n values is 1.25 spreads over the root of n."""
    ends = _ends(optimization)
    squares = sum(statistics.spread(one) ** 2 / len(one) for one in ends)
    return 2 * 1.25 * math.sqrt(squares) / float(np.median(ends[0]))


def _ends(optimization: Optimization) -> tuple[Floats, Floats]:
    """The losses of the first and of the last tenth of the run that are numbers."""
    loss = optimization.steps["loss"]
    tenth = max(1, len(loss) // TENTHS)
    return loss[:tenth][np.isfinite(loss[:tenth])], loss[-tenth:][np.isfinite(loss[-tenth:])]


def hardly_moves(optimization: Optimization, seen: Ratios, limits: Limits) -> float | None:
    """How far the steps lead together, if that is next to nothing and the loss stays where it began; else None."""
    steps = int((~timing.skipped(optimization)).sum())
    if steps < limits["steps"] or len(seen.step) < limits["looks"] or not np.isfinite(seen.update).all():
        return None
    way, fell = travelled(optimization, seen), fall(optimization)
    if way >= limits["travelled"] or fell is None or fell - _noise_of_fall(optimization) >= limits["falls"]:
        return None
    return way
