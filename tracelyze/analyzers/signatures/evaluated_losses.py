"""Losses of both splits at the same steps: evaluated training data set apart a divergence from overfitting.

Logs of benchmarks and of frameworks evaluate a part of the training data beside the validation set. What both curves
do is the model's doing; what only validation does is not learned for new data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence.charts import chart
from tracelyze.analyzers.statistics import Departure, Excursion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Chart, Mark

_BESIDE = 0.5  # share of the validations beside which training data were evaluated: most, or the curves say little
_WIDE = 100  # factor from which on a linear axis shows the lower curve as a line on the ground


@dataclass(frozen=True)
class Evaluated:
    """Evaluations in order: steps done before, losses of validation and of training data, each of shape [passes]."""

    after: Floats
    validation: Floats
    training: Floats


@dataclass(frozen=True)
class Leaps:
    """Excursions of the evaluated losses; `share` of the evaluations inside; `lost`: the level was not regained."""

    found: list[Excursion]
    share: float
    lost: bool


def evaluated(process: Process) -> Evaluated | None:
    """Both curves where a log has them, finite and above zero; None without evaluations of training data.

    Where a log has one training loss, and only beside the validations, it is that one.
    """
    after, losses, _samples = validation.curve(process)
    of_training = validation.of_training_data(process)
    if not len(of_training[0]) and process.optimizations:
        optimization = process.longest.steps
        known = np.isfinite(optimization["loss"])
        steps = optimization["step"][known]
        if len(steps) and np.isin(steps, after).all():
            of_training = steps, optimization["loss"][known]
    at = dict(zip(of_training[0].tolist(), of_training[1].tolist(), strict=True))
    beside = np.array([at.get(step, np.nan) for step in after.tolist()], dtype=np.float64)
    usable = np.isfinite(losses) & np.isfinite(beside) & (losses > 0) & (beside > 0)
    if usable.sum() < max(2, _BESIDE * len(losses)):
        return None
    return Evaluated(after[usable], losses[usable], beside[usable])


def departure(curves: Evaluated, *, factor: float, sigmas: float) -> Departure | None:
    """Whether both curves left their minimum for good, as those of the training data show."""
    both = [statistics.departure(c, factor=factor, sigmas=sigmas) for c in (curves.training, curves.validation)]
    return both[0] if both[0] is not None and both[1] is not None else None


def leaps(curves: Evaluated, *, factor: float, together: float, regained: float) -> Leaps:
    """Leaps of the training data's curve by `factor` in which validation rose by `together`, and what became of them.

    `regained`: within this factor of the level before, the level counts as regained.
    """
    found = []
    for leap in statistics.excursions(curves.training, factor=factor):
        before, inside = curves.validation[: leap.begin], curves.validation[leap.begin : leap.end]
        if inside.max() > together * before.min():
            found.append(leap)
    inside_all = sum(leap.end - leap.begin for leap in found)
    last = float(np.median(curves.training[-3:]))
    return Leaps(found, inside_all / len(curves.training), bool(found) and last > regained * found[-1].base)


def picture(curves: Evaluated, marks: Sequence[Mark] = ()) -> list[Chart]:
    """Both curves over the steps, on a logarithmic axis where they span orders of magnitude."""
    lines = {"training data": curves.training, "validation": curves.validation}
    both = np.concatenate(list(lines.values()))
    wide = bool(both.max() > _WIDE * both.min())
    drawn = chart("Evaluated losses", "step", "loss", curves.after, lines, marks=marks, log_y=wide)
    return [replace(drawn, shows="loss")]
