"""gradient-spikes: a few steps' gradient norms are an order of magnitude above all around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.gradients import misplaced_clips
from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.recorded import logged
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.signatures.spikes import lone_spikes, thrown_weights
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import listed, number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats, Mask

    Rows = npt.NDArray[np.int64]


def check(process: Process, limits: Limits) -> Outcome:
    """Isolated norms far outside of the robust spread before them, by deviations and by a factor."""
    optimization = process.optimizations[0]
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    rows = np.flatnonzero(np.isfinite(optimization.steps["grad_norm"]) & _settled(optimization))
    late = misplaced_clips.seen(optimization)
    limit = np.full(len(optimization.steps), np.nan) if late else optimization.steps["clip_max_norm"]
    reached = np.fmin(optimization.steps["grad_norm"], limit)  # the weights
    found = _spikes(optimization, reached, rows, limits)
    if isinstance(found, Passed | Skipped):
        return found
    return [_finding(optimization, rows, reached[rows], limit[rows], found, limits)]


def _spikes(optimization: Optimization, reached: Floats, rows: Rows, limits: Limits) -> list[int] | Passed | Skipped:
    """Which of these rows of the steps are spikes, as positions in `rows`; or why none are told.

    `reached`: the norms that reached the weights, shape [steps].
    """
    norm, at_first = reached[rows], reached[: len(reached) // 10]
    if len(norm) < limits["norms"]:
        return Skipped(
            f"{plural(len(norm), 'norm')} known after the first tenth of the run; {limits['norms']:.0f} are needed"
        )
    few = len(norm) < limits["few"]  # a shorter window knows less of what is usual: wider limits
    window, factor = (int(limits["norms"]) // 2, 2 * limits["factor"]) if few else (64, limits["factor"])
    found = statistics.spikes(norm, window=window, sigmas=limits["sigmas"], factor=factor)
    # Norms are looked at more often where something is out of the ordinary: what is rare is judged by all steps.
    count = int(_settled(optimization).sum())
    usual_number = limits["spikes"] <= len(found) <= limits["share"] * count
    if not usual_number and few:  # of so few steps three are more than that share already
        found = lone_spikes.isolated(norm, rows, factor=factor, sigmas=limits["sigmas"])
        usual_number = limits["spikes"] <= len(found) <= max(limits["spikes"], limits["often"] * count)
    if not usual_number:
        lone = lone_spikes.towering(norm, rows, height=limits["height"], gap=limits["gap"], sigmas=limits["sigmas"])
        if not limits["pair"] <= len(lone) <= max(limits["spikes"], limits["often"] * count):
            return Passed(f"{plural(len(found), 'spike')} among {len(norm):,} gradient norms")
        found = lone
    usual = [norm[: found[0]], at_first[np.isfinite(at_first)]]
    levels = [statistics.running_median(before, int(limits["level"])).max() for before in usual if len(before)]
    if levels and np.median(norm[found]) <= max(levels):
        return Passed(f"{plural(len(found), 'spike')}, none far above norms that were usual earlier in the training")
    return found


def _finding(
    optimization: Optimization, rows: Rows, norm: Floats, clip: Floats, found: list[int], limits: Limits
) -> Finding:
    """The finding about the spikes `found` among these rows of the steps, with their norms and limits of clipping."""
    steps = [timing.step_at(optimization, int(rows[index])) for index in found]
    ratio = float(np.median(norm[found]) / np.median(norm))
    batches = logged.batches(optimization.process, [int(rows[index]) for index in found])
    which = f" They came from these batches: {', '.join(batches[:8])}." if batches else ""
    clipped = bool((norm[found] == clip[found]).all())
    harm = (
        f"Clipping at {number(float(np.median(clip[found])))} already bounds what they do."
        if clipped
        else "Each such step may undo many others." + misplaced_clips.told(optimization)
    )
    at = listed(steps, most=8)
    spikes = [int(rows[index]) for index in found]
    why, fix = (f"{thrown_weights.BATCHES} {harm}", "") if clipped else thrown_weights.told(optimization, spikes, harm)
    return Finding(
        rule=RULE.id,
        severity="info" if clipped else "warning",
        confidence="likely",
        title=f"Gradients spike at {plural(len(found), 'step')}, to {number(ratio)} times the usual norm",
        summary=(
            f"At steps {at} the gradient norm leapt to about {number(ratio)} times its usual size and came "
            f"back. {why}{which}"
        ),
        fix=fix or thrown_weights.CLIP,
        fix_code="torch.nn.utils.clip_grad_norm_("
        f"model.parameters(), max_norm={2 * float(np.median(norm)):.3g})  # between backward and step",
        first_step=steps[0],
        last_step=steps[-1],
        first_second=timing.second_at(optimization, int(rows[found[0]])),
        evidence=[
            Evidence("spikes", len(found), "steps", limits["spikes"], limits.source("spikes")),
            Evidence("median height over the usual norm", ratio, "", limits["factor"], limits.source("factor")),
            Evidence("steps", at),
            *(Evidence("batch, as the script logged it", batch) for batch in batches[:8]),
        ],
        location=misplaced_clips.line(optimization) or optimization.backward_location,
        charts=pictures.grad_norm(optimization, [Mark(float(steps[0]), "first spike")]),
        false_alarm="Data that contain rare but valid extremes; clipping may already take care of them.",
    )


def _settled(optimization: Optimization) -> Mask:
    """Steps that trained, without the first tenth of the run, in which norms settle. Shape [steps]."""
    usable = timing.trained_steps(optimization)
    usable[: len(usable) // 10] = False
    return usable


RULE = Rule(
    id="gradient-spikes",
    family="gradients",
    severity="warning",
    title="Gradient norms spike",
    about="Isolated gradients far outside of what is usual come from single batches, and can cost many good steps.",
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
    not_when="Spikes of a model that has converged, no larger than its first gradients, heavy-tailed but stationary "
    "norms, clipped norms, the first steps, several optimizers, acting models.",
)
