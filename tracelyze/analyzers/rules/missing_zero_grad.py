"""missing-zero-grad: the gradients of every step are added to those of all steps before it."""

from __future__ import annotations

import numpy as np

from tracelyze.analyzers import charts, statistics
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.run import Process, Training
from tracelyze.diagnosis import Evidence, Finding

FIX = "Clear the gradients once per optimizer step, right before the backward pass (or right after the step)."
FIX_CODE = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()"


def check(process: Process, limits: Limits) -> Outcome:
    findings: list[Finding] = []
    reasons: list[str] = []
    for training in process.trainings:
        if training.steps.has("grads_carried"):
            finding = _direct(training, limits)
            reasons.append("no step consumed a gradient that an earlier step had already consumed")
        else:
            finding = _signature(training, limits)
            reasons.append("the gradient norm does not grow with the number of steps")
        if finding is not None:
            findings.append(finding)
    return findings or Passed("; ".join(dict.fromkeys(reasons)))


def _direct(training: Training, limits: Limits) -> Finding | None:
    """The mechanism itself: a backward added into gradients that a step had consumed, step after step."""
    ...


RULE = Rule(
    id="missing-zero-grad",
    family="gradients",
    severity="critical",
    title="Gradients are never cleared",
    about="...",
    check=check,
)
