"""loss-divergence: the loss left its minimum for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.gradients import misplaced_clips
from tracelyze.analyzers.computed.optimization import objectives, ratios, style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.loss.loss_divergence import curriculum, diverged_evaluations, harder_stages
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """A sustained rise above the earlier minimum, of the only optimizer's loss, or of both evaluated losses."""
    optimization = process.optimizations[0]
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    of_steps = _of_steps(process, optimization, limits)
    if isinstance(of_steps, list):
        return of_steps
    of_evaluations = diverged_evaluations.finding(process, RULE.id, limits)
    if isinstance(of_evaluations, Finding):
        return [of_evaluations]
    return of_steps if isinstance(of_steps, Passed) or isinstance(of_evaluations, Skipped) else of_evaluations


def _of_steps(process: Process, optimization: Optimization, limits: Limits) -> Outcome:
    rows = np.flatnonzero(np.isfinite(optimization.steps["loss"]) & ~timing.skipped(optimization))
    loss = optimization.steps["loss"][rows]
    if len(loss) < statistics.FEWEST_TO_DIVERGE:
        needed = f"{statistics.FEWEST_TO_DIVERGE} are needed to tell a rise from noise"
        return Skipped(f"{plural(len(loss), 'loss')}: {needed}")
    if float(np.quantile(loss, 0.1)) <= 0:
        return Skipped("the loss reaches zero or below, so a rise cannot be measured as a share of it")
    seen = statistics.divergence(loss, rise=limits["rise"], regained=limits["regained"], sigmas=limits["sigmas"])
    if seen is None:
        return Passed("the loss did not rise for good above its earlier minimum")
    first = int(rows[min(seen.turned, len(rows) - 1)])
    if curriculum.larger_from(process, timing.step_at(optimization, first)):
        return Passed("the loss rose above its earlier minimum when the training went on with larger inputs")
    if fell := harder_stages.validation_fell(optimization, seen, timing.step_at(optimization, first)):
        return Passed(f"the loss rose above its earlier minimum, and {fell}")
    other = objectives.another_from(optimization, loss, rows.astype(np.float64), seen)
    if other is not None:
        return Passed(
            f"the loss jumped at step {timing.step_at(optimization, other):,} after an update that was no larger than "
            "others: the objective or the data changed there"
        )
    if objectives.risen_beside(optimization, seen, timing.step_at(optimization, first)):
        return Passed("the loss rose, and what its loss functions say did not: another term of it, or its weight, did")
    leapt = harder_stages.leap(optimization, rows, loss, seen)
    begins = timing.step_at(optimization, int(rows[leapt])) if leapt is not None else None
    if begins is not None and (column := harder_stages.changed_column(process, begins)):
        return Passed(f"the loss leapt at step {begins:,} and has fallen since: {column} there")
    updates = ratios.of(optimization)
    late = updates.update[(updates.step >= first) & np.isfinite(updates.update)]
    unsound = float(late.max()) >= limits["update"] if len(late) else leapt is None
    harmful = unsound or (seen.end > seen.start and leapt is None)
    return [_finding(optimization, first, seen, limits, harmful, harder_stages.words(leapt))]


def _finding(
    optimization: Optimization, first: int, seen: statistics.Divergence, limits: Limits, harmful: bool, harder: str
) -> Finding:
    """`harmful`: the loss is above its start, or updates are as large as those that blow up; else the task may have
    become harder on purpose."""
    begin = timing.step_at(optimization, first)
    worse, never_lower = seen.end > seen.start, seen.minimum > seen.start
    affected = np.zeros(len(optimization.steps), dtype=bool)
    affected[first:] = True
    marks = [Mark(float(begin), "minimum passed")]
    return Finding(
        rule=RULE.id,
        severity="info" if not harmful else "critical" if worse else "warning",
        confidence="likely" if harmful else "possible",
        title=f"The loss {'diverged' if harmful else 'rose again'}: "
        f"{f'{number(seen.start)} at the start' if never_lower else f'{number(seen.minimum)} at its lowest'}, about "
        f"{number(seen.end)} at the end",
        summary=(
            (
                f"The loss was {number(seen.start)} at the start and never stayed lower for long. It was at "
                f"{number(seen.minimum)} around step {begin:,}, then rose and stayed high: "
                if never_lower
                else f"The loss reached {number(seen.minimum)} around step {begin:,}, then rose and stayed high: "
            )
            + f"about {number(seen.end)} at the end"
            + (", above where it had started." if worse else f", compared with {number(seen.start)} at the start.")
            + (" It has not come back since." + misplaced_clips.told(optimization) if harmful else harder)
        ),
        fix=harder_stages.fix(harmful, misplaced_clips.seen(optimization)),
        fix_code=harder_stages.CLIP if harmful else "",
        verify=harder_stages.VERIFY if not harmful else "",
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("smallest loss (median of a block)", seen.minimum),
            Evidence(
                "loss at the end",
                seen.end,
                "",
                seen.minimum + seen.margin,
                f"minimum plus the largest of {number(limits['sigmas'])} deviations of the noise, "
                f"{percent(limits['rise'])} of the minimum and {percent(limits['regained'])} of what was gained",
            ),
            Evidence("loss at the start", seen.start),
        ],
        cost=timing.cost_of(optimization, affected) if harmful else None,
        location=misplaced_clips.line(optimization) or optimization.loss_location,
        charts=pictures.loss(optimization, marks) + pictures.grad_norm(optimization, marks),
        false_alarm="A curriculum, or a change of loss weights or data during the run.",
    )


RULE = Rule(
    id="loss-divergence",
    family="loss",
    severity="critical",
    title="The loss diverged",
    about="A loss that rises above its minimum and stays there means that training is undoing what it learned.",
    check=check,
    settings=("learning_rate",),
    verify="Record the run again: the loss stays near its minimum.",
    absent="The run has no loss.",
    needs=(("steps.loss",), ("evals.loss",)),
    thresholds=(
        Threshold("rise", 0.15, "share", "simulated rises of 40% and more are found, noise of any shape is not"),
        Threshold("regained", 0.1, "share", "noise around a loss that converged is small against what was gained"),
        Threshold(
            "evaluated", 1.3, "", "both evaluated splits: another evaluation of the same model gives the same loss"
        ),
        Threshold("alone", 100, "", "of a validation loss alone: overfitting raises it by less than a power of ten"),
        Threshold("update", 0.1, "", "of a weight in one step: as for learning-rate-too-high"),
        Threshold("sigmas", 6, "", "autocorrelated noise exceeds 3 in one run of twenty, 6 in one of a hundred"),
    ),
    not_when="A change of objective or data at some step, a validation loss that falls meanwhile, a term whose weight "
    "grows, excursions that recover, larger inputs from then on, negative losses, several optimizers, models that act "
    "(RL).",
)
