"""step-without-backward: the optimizer steps again and again although no backward came since its last step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process, Training
    from tracelyze.analyzers.recorded.table import Mask


def check(process: Process, limits: Limits) -> Outcome:
    """Steps without a backward among steps that had one."""
    if len(process.trainings) > 1:
        return Skipped(
            "several optimizers: one may step on gradients whose backward another one's step has counted",
            "not-applicable",
        )
    return _check(process.trainings[0], limits)


def _check(training: Training, limits: Limits) -> Outcome:
    backwards = training.steps["backwards"]
    known = np.isfinite(backwards) & ~timing.skipped(training)
    idle = known & (backwards == 0)
    if not (backwards[known] > 0).any():
        return Skipped(
            "no step had a backward of its own: the gradients come from somewhere else (autograd.grad)",
            "not-applicable",
        )
    count, share = int(idle.sum()), float(idle.sum() / known.sum())
    if count < limits["steps"] or share < limits["share"]:
        return Passed(
            f"{count:,} of {int(known.sum()):,} steps had no backward pass of their own"
            if count
            else "every step followed a backward pass"
        )
    return [_finding(training, idle, share, limits)]


def _finding(training: Training, idle: Mask, share: float, limits: Limits) -> Finding:
    steps = training.steps
    first = int(np.argmax(idle))
    begin, count = timing.step_at(training, first), int(idle.sum())
    empty = bool((steps["grads_none"][idle] >= steps["parameters"][idle]).mean() > limits["empty"])
    effect = (
        "The gradients had been cleared, so these steps changed nothing, but a schedule that counts steps runs ahead."
        if empty
        else "They repeat the update of the step before on the same gradients, as if the learning rate were larger, "
        "and momentum counts those gradients again."
    )
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain" if empty else "likely",
        title=f"{plural(count, 'optimizer step')} ran without a backward pass since the step before",
        summary=f"From step {begin} on, {share_of(share, 'steps')} had no gradients of their own. {effect}",
        fix="Step once per backward, or once per accumulated batch, right after the backward that completes it.",
        fix_code="loss.backward()\noptimizer.step()\noptimizer.zero_grad()",
        first_step=begin,
        last_step=timing.step_at(training, int(np.flatnonzero(idle)[-1])),
        first_second=timing.second_at(training, first),
        evidence=[
            Evidence("steps without a backward", share, "share", limits["share"], limits.source("share")),
            Evidence("such steps", count, "steps", limits["steps"], limits.source("steps")),
            Evidence("gradients at such a step", "None" if empty else "those of the step before"),
        ],
        cost=timing.cost_of(training, idle),
        location=training.step_location,
        charts=pictures.over_steps(
            training, "Backward passes per step", "backwards", {"backwards": "backwards"}, [Mark(float(begin), "none")]
        ) + pictures.loss(training),
        false_alarm="Gradients that torch.autograd.grad computes at some steps, put into .grad by hand.",
    )  # fmt: skip


RULE = Rule(
    id="step-without-backward",
    family="gradients",
    severity="warning",
    title="Steps without a backward",
    about="A step on gradients that a step has already used, or on none, is no update that the data asked for.",
    check=check,
    verify="Record the run again: every optimizer step follows a backward pass.",
    excluded=(
        "Several optimizers: only one stepped in this run.",
        "Steps that a loss scaler skipped are not counted.",
    ),
    needs=(("steps.backwards",),),
    thresholds=(
        Threshold(
            "share", 0.05, "share", "an extra step per epoch or at the start, to please a scheduler, stays below"
        ),
        Threshold("steps", 10, "steps", "a handful are a resumed run or a change of phase"),
        Threshold(
            "empty", 0.5, "share", "of these steps: it decides which harm the finding names, not whether it fires"
        ),
    ),
    consequence_of=("zero-gradients",),
    not_when="Closures (LBFGS), several optimizers, gradients from autograd.grad, a step or two at the start.",
)
