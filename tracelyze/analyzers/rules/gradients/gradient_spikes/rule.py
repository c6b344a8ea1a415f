"""gradient-spikes: a few steps' gradient norms are an order of magnitude above all around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracelyze.analyzers.computed.gradients import misplaced_clips
from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.recorded import logged
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.gradients.gradient_spikes import norm_spikes
from tracelyze.analyzers.signatures.spikes import remade_optimizers, thrown_weights
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import listed, number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rules.gradients.gradient_spikes.norm_spikes import Spikes

    Rows = npt.NDArray[np.int64]


def check(process: Process, limits: Limits) -> Outcome:
    """Isolated norms far outside of the robust spread before them, by deviations and by a factor."""
    optimization = process.optimizations[0]
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    rows = np.flatnonzero(np.isfinite(optimization.steps["grad_norm"]) & norm_spikes.settled(optimization))
    late = misplaced_clips.seen(optimization)
    limit = np.full(len(optimization.steps), np.nan) if late else optimization.steps["clip_max_norm"]
    reached = np.fmin(optimization.steps["grad_norm"], limit)  # the weights
    found = norm_spikes.of_norms(optimization, reached, rows, limits)
    if isinstance(found, Passed | Skipped):
        return found
    remade = remade_optimizers.of(optimization, thrown_weights.UP)
    if remade is not None and remade.follow([timing.step_at(optimization, int(rows[one])) for one in found[0]]):
        return Passed("norms leap behind the first updates of optimizers that are made anew, as the losses do")
    return [_finding(optimization, rows, reached[rows], limit[rows], found, limits)]


def _finding(
    optimization: Optimization, rows: Rows, norm: Floats, clip: Floats, spikes: Spikes, limits: Limits
) -> Finding:
    """The finding about the spikes among these rows of the steps, with their norms and limits of clipping."""
    found, usual = spikes
    steps = [timing.step_at(optimization, int(rows[index])) for index in found]
    ratio = float(np.median(norm[found])) / usual
    batches = logged.batches(optimization.process, [int(rows[index]) for index in found])
    which = f" These batches caused it: {', '.join(batches[:8])}." if batches else ""
    clipped = bool((norm[found] == clip[found]).all())
    harm = (
        f"Clipping at {number(float(np.median(clip[found])))} already limits the damage."
        if clipped
        else "Each such step may undo many good ones." + misplaced_clips.told(optimization)
    )
    at = listed(steps, most=8)
    at_rows = [int(rows[index]) for index in found]
    why, fix = (f"{thrown_weights.BATCHES} {harm}", "") if clipped else thrown_weights.told(optimization, at_rows, harm)
    return Finding(
        rule=RULE.id,
        severity="info" if clipped else "warning",
        confidence="likely",
        title=f"Gradients spike at {plural(len(found), 'step')}, to {number(ratio)} times the usual norm",
        summary=(
            f"At steps {at} the gradient norm jumped to about {number(ratio)} times its usual size and came back. "
            f"{why}{which}"
        ),
        fix=fix or thrown_weights.CLIP,
        fix_code="torch.nn.utils.clip_grad_norm_("
        f"model.parameters(), max_norm={2 * usual:.3g})  # between backward and step",
        first_step=steps[0],
        last_step=steps[-1],
        first_second=timing.second_at(optimization, int(rows[found[0]])),
        evidence=[
            Evidence("spikes", len(found), "steps", *limits.against("spikes")),
            Evidence("median height over the usual norm", ratio, "", *limits.against("factor")),
            Evidence("steps", at),
            *(Evidence("batch, as the script logged it", batch) for batch in batches[:8]),
        ],
        location=misplaced_clips.line(optimization) or optimization.backward_location,
        charts=pictures.grad_norm(optimization, [Mark(float(steps[0]), "first spike")]),
        false_alarm="Data that contain rare but valid extremes; clipping may already take care of them.",
    )


RULE = Rule(
    id="gradient-spikes",
    family="gradients",
    severity="warning",
    title="Gradient norms spike",
    about="Isolated gradients far outside the usual range come from single batches and can undo many good steps.",
    check=check,
    verify="Record the run again: no step is ten times above the usual norm after clipping.",
    absent="The run has no gradient norm.",
    needs=(("steps.grad_norm",),),
    thresholds=(
        Threshold("sigmas", 8, "", "stationary heavy tails (Student t3) have few beyond, and none by the factor"),
        Threshold("factor", 10, "", "an order of magnitude: far outside of heavy tails that are stationary"),
        Threshold("spikes", 3, "steps", "one or two happen in healthy trainings"),
        Threshold("pair", 2, "steps", "of `height` with `gap`: none in 203 healthy runs and 15,000 simulated tails"),
        Threshold("height", 50, "", "times the norms around; measured: two of a healthy training reach 23 with a gap"),
        Threshold("gap", 3, "", "between logarithms of the lowest of them and of the highest other one; healthy: 1.6"),
        Threshold("often", 0.05, "share", "of the steps: one bad sample meets every epoch of twenty batches once"),
        Threshold("share", 0.02, "share", "what happens in every fiftieth step is not a spike but the distribution"),
        Threshold("level", 17, "norms", "whose median is usual: what a training bore for so long does no harm"),
        Threshold("norms", 48, "norms", "two windows of the 24 norms that then have to define what is usual"),
        Threshold("few", 200, "norms", "three windows of the 64 norms that define what is usual"),
    ),
    not_when="Spikes of a converged model no larger than its first gradients, heavy-tailed but stationary norms, "
    "clipped norms, the first steps, several optimizers, models that act (RL).",
)
