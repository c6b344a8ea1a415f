"""Leaps of the loss that last for several steps, of the training itself or of its evaluations, put into words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.optimization import objectives
from tracelyze.analyzers.computed.throughput import workload
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rules.loss.loss_spikes import loss_leaps, told_leaps
from tracelyze.analyzers.rules.loss.loss_spikes.told_leaps import Leapt
from tracelyze.analyzers.signatures import evaluated_losses
from tracelyze.analyzers.signatures.spikes import thrown_weights
from tracelyze.diagnosis import Mark

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.signatures.evaluated_losses import Evaluated, Leaps
    from tracelyze.analyzers.statistics import Excursion
    from tracelyze.diagnosis import Finding


def of(process: Process, rows: NDArray[np.intp], limits: Limits) -> list[Excursion]:
    """Lasting leaps of the losses of these steps, without those at which the samples became larger."""
    optimization = process.longest
    losses = optimization.steps["loss"][rows]
    if len(losses) < limits["losses"]:
        return []
    begun = {leap: timing.step_at(optimization, int(rows[leap.begin])) for leap in loss_leaps.of_steps(losses, limits)}
    return [leap for leap, step in begun.items() if not workload.grew_at(process, step, limits["harder"])]


def finding(
    optimization: Optimization, rows: NDArray[np.intp], found: list[Excursion], rule: str, limits: Limits
) -> Finding:
    """The finding of leaps that last for several steps, with what came with them: another objective, thrown weights."""
    losses = optimization.steps["loss"][rows]
    at = [int(rows[leap.begin]) for leap in found]
    steps = [timing.step_at(optimization, row) for row in at]
    lost = statistics.median(losses[-8:]) > limits["regained"] * found[-1].base
    start = limits["start"] * statistics.median(losses[: int(limits["width"])])
    sudden = all(objectives.jumps_to(optimization, losses, rows, leap) for leap in found)
    other = sudden and all(leap.peak <= start for leap in found)
    above = sudden and not other and all(losses[leap.begin : leap.end].max() > start for leap in found)
    thrown = above and thrown_weights.measured(optimization, at)
    told = thrown_weights.updates(optimization, at) + thrown_weights.rhythm(optimization, at)
    told += thrown_weights.evaluated(optimization, steps) if thrown else ""
    leapt = Leapt(steps, _height(found), lost, other, told, optimization.step_location, thrown)
    return told_leaps.finding(rule, leapt, limits, pictures.loss(optimization, _marks(steps)))


def of_evaluations(curves: Evaluated, leaps: Leaps, rule: str, limits: Limits) -> Finding:
    """The finding of leaps of the evaluated losses of both splits."""
    steps = [int(curves.after[leap.begin]) for leap in leaps.found]
    leapt = Leapt(steps, _height(leaps.found), leaps.lost)
    return told_leaps.finding(rule, leapt, limits, evaluated_losses.picture(curves, _marks(steps)))


def _height(found: list[Excursion]) -> float:
    """The median of what the leaps reach, in multiples of the level before each."""
    return float(np.median([leap.peak / leap.base for leap in found]))


def _marks(steps: list[int]) -> list[Mark]:
    return [Mark(float(step), "leap") for step in steps[:8]]
