"""exploding-gradients: the gradient norm leaves its early level by orders of magnitude and stays there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import moments, pictures, statistics, style
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.analyzers.words import number
from tracelyze.diagnosis import Evidence, Finding, Mark

if TYPE_CHECKING:
    from tracelyze.analyzers.run import Floats, Process, Training

FIX = "Lower the learning rate or warm it up, and clip the gradient norm right before the step."
FIX_CODE = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\noptimizer.step()"


def check(process: Process, limits: Limits) -> Outcome:
    """The level of the norm against its early level, to the end or until it was no number any more."""
    return combine(_check(training, limits) for training in process.trainings)


def _check(training: Training, limits: Limits) -> Finding | Passed | Skipped:
    steps = training.steps
    reason = style.unjudgeable(training)
    if reason:
        return Skipped(reason)
    measured = steps.known("grad_norm") & ~moments.skipped(training)
    broken = np.flatnonzero(measured & ~np.isfinite(steps["grad_norm"]))
    until = int(broken[0]) if len(broken) else len(steps)
    rows = np.flatnonzero(measured & (steps["grad_norm"] > 0))
    rows = rows[rows < until]
    norm = steps["grad_norm"][rows]
    if len(norm) < limits["norms"]:
        return Skipped(f"{len(norm)} gradient norms: {limits['norms']:.0f} are needed to see a level and its change")
    base = float(np.median(norm[min(5, len(norm) // 10) : max(10, len(norm) // 4)]))
    late = float(np.median(norm[-3:] if len(broken) else norm[-max(5, len(norm) // 10) :]))
    if late < limits["ratio"] * base or (not len(broken) and _improves(steps["loss"])):
        return Passed(f"the gradient norm ended at {number(late / base)} times its early level")
    level = statistics.onset(norm, 10 * base)
    before = 0 if not level else int(rows[level - 1]) + 1  # the step after the last norm that was measured as usual
    return _grown(training, before, late / base, limits)


def _improves(loss: Floats) -> bool:
    """Whether the loss ended below where it began: then large gradients do no harm."""
    loss = loss[np.isfinite(loss)]
    part = max(5, len(loss) // 10)
    return len(loss) >= 20 and bool(np.median(loss[-part:]) < np.median(loss[:part]))


def _grown(training: Training, first: int, ratio: float, limits: Limits) -> Finding:
    begin = moments.step_at(training, first)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Gradients{moments.name_of(training)} explode: their norm is {number(ratio)} times its early level",
        summary=(
            f"From step {begin} on the gradient norm stays more than ten times above its early level and ends at "
            f"{number(ratio)} times of it, while the loss does not improve or is lost."
        ),
        fix=FIX,
        fix_code=FIX_CODE,
        first_step=begin,
        last_step=moments.last_step(training),
        first_second=moments.second_at(training, first),
        evidence=[
            Evidence("late norm over early norm", ratio, "", limits["ratio"], limits.source("ratio")),
            Evidence("learning rate there", _number(training.steps["lr"][first])),
        ],
        location=training.backward_location,
        charts=pictures.grad_norm(training, [Mark(float(begin), "leaves its level")])
        + pictures.loss(training, [Mark(float(begin), "gradients leave their level")]),
        false_alarm="A loss whose scale was changed on purpose during the run.",
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


RULE = Rule(
    id="exploding-gradients",
    family="gradients",
    severity="critical",
    title="Gradients explode",
    about="Gradients that grow by orders of magnitude and stay there undo what was learned.",
    check=check,
    needs=(("steps.grad_norm",),),
    thresholds=(
        Threshold("ratio", 100, "", "warm-up stays within one order of magnitude; two leave no doubt"),
        Threshold("norms", 40, "norms", "a quarter of it, ten, is the least that gives a level"),
    ),
    consequence_of=("missing-zero-grad", "partial-zero-grad", "loss-divergence"),
    not_when="Warm-up within an order of magnitude, single spikes, several optimizers, reinforcement learning.",
)
