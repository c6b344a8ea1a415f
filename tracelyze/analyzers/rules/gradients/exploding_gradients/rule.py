"""exploding-gradients: the gradient norm leaves its early level by orders of magnitude and stays there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.gradients import exponentials, misplaced_clips
from tracelyze.analyzers.computed.optimization import clip_values, one_batch, style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.analyzers.rules.gradients.exploding_gradients import critics, loss_alongside, through_time
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

FIX = "Lower the learning rate or warm it up, and clip the gradient norm right before the step."
FIX_CLIPPED = "Lower the learning rate or warm it up. Steps are clipped already, and the norm before the clip grew."
FIX_SIGN = "Check the sign of every term of the loss (penalties are added), and bound terms that have no lower bound."
RUNAWAY = (
    "while the loss falls ever faster below zero. No error measure does that: some term of the loss has the wrong "
    "sign or no lower bound, and the weights run away along it."
)
FIX_CODE = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\noptimizer.step()"


@each_optimization
def check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    """The level of the norm against its early level, to the end or until it was no number any more; a recurrence whose
    state is out of bounds from the start."""
    steps = optimization.steps
    reason = style.unjudgeable(optimization)
    if reason:
        return critics.finding(optimization, RULE.id, limits) or Skipped(reason)
    in_time = through_time.finding(optimization, RULE.id, limits)
    if in_time is not None:
        return in_time
    measured = steps.known("grad_norm") & ~timing.skipped(optimization)
    broken = np.flatnonzero(measured & ~np.isfinite(steps["grad_norm"]))
    until = int(broken[0]) if len(broken) else len(steps)
    usual = measured & (steps["grad_norm"] > 0)
    rows = np.flatnonzero(usual & (len(broken) > 0 or ~loss_alongside.lone_batches(steps["loss"], limits)))
    rows = rows[rows < until]
    norm = steps["grad_norm"][rows]
    if len(norm) < (limits["norms"] / 2 if len(broken) else limits["norms"]):
        return Skipped(
            f"{plural(len(norm), 'gradient norm')} were measured; {limits['norms']:.0f} are needed to see a "
            "level and its change"
        )
    base = statistics.median(norm[min(5, len(norm) // 10) : max(10, len(norm) // 4)])
    # The last share of the steps, not of the norms: the beginning of a run is sampled more densely.
    tail = norm[-max(3, int((rows >= limits["late"] * len(steps)).sum())) :]
    late = float(np.max(norm[-2:]) if len(broken) else np.median(tail))  # an explosion into NaN may take two steps
    runaway = late >= limits["runaway"] * base and loss_alongside.falls_without_bound(steps["loss"], limits)
    cut_off = not len(broken) or loss_alongside.breaks_by_itself(steps["loss"], until, limits)
    harmless = cut_off and not runaway and loss_alongside.improves(steps["loss"], limits)
    if late < limits["ratio"] * base or harmless:
        ending = f"the gradient norm ended at {number(late / base)} times its early level"
        return Passed(ending + (", but the loss improved" if late >= limits["ratio"] * base else ""))
    level = statistics.onset(norm, 10 * base)
    before = 0 if not level else int(rows[level - 1]) + 1  # the step after the last norm that was measured as usual
    seen = before if not level else int(rows[level])
    return _grown(optimization, (before, seen), late / base, base, runaway, limits)


def _grown(
    optimization: Optimization, between: tuple[int, int], ratio: float, base: float, runaway: bool, limits: Limits
) -> Finding:
    """The finding about norms that grew above their early level. `between`: the first row that may be above the early
    level, and the first that was measured to be."""
    first = between[0]
    begin, seen = (timing.step_at(optimization, row) for row in between)
    since = f"From step {begin:,} on" if seen == begin else f"From some step between {begin:,} and {seen:,} on"
    limit = (limits["ratio"] * base, f"{limits['ratio']:g} times the early level")
    effect = RUNAWAY if runaway else "while the loss does not improve or blows up." + misplaced_clips.told(optimization)
    in_vain, clipped = misplaced_clips.seen(optimization), np.nan_to_num(optimization.steps["clips"]) > 0
    bounded = not in_vain and float(clipped.mean()) > limits["habit"]
    fix = misplaced_clips.FIX if in_vain else FIX_CLIPPED if bounded else FIX
    rate = clip_values.with_lower_rate(optimization)
    code = rate.strip().replace("# and where", "# where") if bounded else FIX_CODE + rate
    batch, look = ("", "") if runaway else one_batch.told(optimization, between)
    exponential = None if runaway else exponentials.of(optimization)
    place = None if exponential is None else exponential.place
    if exponential is not None:
        batch, look, fix, code = batch + exponential.said, "", exponential.fix, exponential.code
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=(
            f"Gradients{timing.name_of(optimization)} explode: the norm rose to {number(ratio)} times its early level"
        ),
        summary=(
            f"{since} the gradient norm stays more than ten times above its early level and ends at "
            f"{number(ratio)} times that level, {effect}{batch}"
        ),
        fix=FIX_SIGN if runaway else look + fix,
        fix_code="" if runaway else code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("late norm over early norm", ratio, "", *limits.against("ratio")),
            Evidence("learning rate there", _number(optimization.steps["lr"][first])),
        ],
        location=place or misplaced_clips.line(optimization) or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.grad_norm(optimization, [Mark(float(begin), "leaves its level")], limit=limit)
        + pictures.loss(optimization, [Mark(float(begin), "gradients leave their level")]),
        false_alarm="A loss whose scale changes on purpose during the run.",
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


RULE = Rule(
    id="exploding-gradients",
    family="gradients",
    severity="critical",
    title="Gradients explode",
    about="Gradients that grow by orders of magnitude and stay large undo what was learned.",
    check=check,
    verify="Record the run again: the gradient norm stays within an order of magnitude of its early level.",
    absent="The run has no gradient norm.",
    needs=(("steps.grad_norm",),),
    thresholds=(
        Threshold("ratio", 100, "", "warm-up stays within one order of magnitude; two leave no doubt"),
        Threshold("unbounded", 10, "", "derived: an order of magnitude, beside a line that bounds the weights in vain"),
        Threshold("leap", 10, "", "an order of magnitude is beyond the tails of a loss"),
        Threshold("runaway", 1000, "", "flows and VAEs end below zero too, but their norms stay within two orders"),
        Threshold("norms", 40, "norms", "a quarter of it, ten, is the least that gives a level"),
        Threshold("late", 0.9, "share", "of the steps: the last tenth shows how the run ended"),
        Threshold("habit", 0.5, "share", "of the steps that clip: it decides what the fix says, not whether it fires"),
        Threshold("apart", 10, "", "derived: the error is a hundred times that of the best constant"),
        Threshold("gradient", 100, "", "per weight, measured: 70 of 71 sound runs stay below 1, a summed loss at 10"),
        Threshold("looks", 8, "measurements", "without them it is not known how much targets differ"),
        Threshold("losses", 20, "losses", "a tenth of fewer is a single loss, whose noise decides"),
    ),
    not_when="Warm-up within an order of magnitude, single spikes, several optimizers (but for a critic that nothing "
    "bounds), reinforcement learning.",
)
