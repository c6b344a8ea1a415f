"""nonfinite-gradients: gradients became NaN or Inf while the loss was still finite, and no scaler skipped the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.gradients import misplaced_clips
from tracelyze.analyzers.computed.optimization import prelude
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, OneOutcome, Passed, Rule, Skipped, each_optimization
from tracelyze.analyzers.rules.nonfinite.nonfinite_gradients import not_finite
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import attended_rows
from tracelyze.analyzers.script.loss import singular_gradients
from tracelyze.analyzers.signatures import hidden_nan
from tracelyze.diagnosis import Evidence, Finding, Mark

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.diagnosis import Location


@each_optimization
def check(optimization: Optimization, _limits: Limits) -> OneOutcome:
    """The first step whose gradients were not finite, if that came before the first loss that was not."""
    steps = optimization.steps
    broken = steps.known("grad_norm") & ~np.isfinite(steps["grad_norm"])
    broken |= np.nan_to_num(steps["grads_nonfinite"]) > 0
    broken &= ~timing.skipped(optimization) & ~steps.known("scale")
    lost = (steps.known("loss") & ~np.isfinite(steps["loss"])) | hidden_nan.since(optimization)
    if not broken.any():
        return Passed("no gradient was NaN or Inf outside of steps that a loss scaler watches")
    first = int(np.argmax(broken))
    if lost.any() and int(np.argmax(lost)) <= first:
        return _after_the_loss(optimization, int(np.argmax(lost)))
    return _finding(optimization, first, broken)


def _after_the_loss(optimization: Optimization, lost: int) -> Passed | Skipped:
    """Gradients of the very step before may have spoilt the weights, and so the loss, where nobody looked at them."""
    if lost and not prelude.looked_at(optimization)[lost - 1]:
        return Skipped(
            f"the loss was not finite from step {timing.step_at(optimization, lost):,} on (see loss-nonfinite), and "
            "whether the gradients one step earlier were was not looked at"
        )
    return Passed("gradients were not finite only from the step on at which the loss was not: see loss-nonfinite")


def _count(optimization: Optimization, first: int, broken: Mask) -> list[Evidence]:
    """How many steps had such gradients: of those looked at, where these are not all from the first one on."""
    looked = prelude.looked_at(optimization)[first:]
    count = int(broken.sum())
    if looked.all():
        return [Evidence("steps with such gradients", count, "steps")]
    return [
        Evidence("steps whose gradients were looked at since", int(looked.sum()), "steps", role="basis"),
        Evidence("of those looked at, steps with such gradients", count, "steps"),
    ]


def _finding(optimization: Optimization, first: int, broken: Mask) -> Finding:
    begin = timing.step_at(optimization, first)
    overflowed = not_finite.overflowed(optimization, first)
    several = optimization.steps["backwards"][first] > 1  # The loss of one of them is known.
    filtered = hidden_nan.may_hide(optimization.process)
    unsure = filtered or several or not not_finite.loss_is_known(optimization, first)
    events = timing.events_of(optimization, "nonfinite-gradient")
    spread = misplaced_clips.spread(optimization, first)  # then neither the first nor their number is known
    where = f" (first in {events[0]['name']})" if events and events[0]["name"] and not spread else ""
    operation = singular_gradients.named(events)
    operation = operation if unsure else singular_gradients.beside_a_finite_loss(operation)
    misplaced = misplaced_clips.line(optimization)
    singular = _line(optimization, operation) if not overflowed and misplaced is None else None
    fix, code, diff = (
        not_finite.OVERFLOWED if overflowed else singular_gradients.advice(optimization.process, operation, singular)
    )
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely" if overflowed or unsure else "certain",
        title=not_finite.title(optimization, first, where),
        summary=not_finite.told(optimization, first, filtered, operation),
        fix=fix + not_finite.remedy(optimization, first, operation),
        fix_code=code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence(
                "after a clip of all, tensors with NaN or Inf" if spread else "tensors with NaN or Inf",
                _number(optimization.steps["grads_nonfinite"][first]),
                "tensors",
                0,
                "a gradient is a number",
            ),
            *_count(optimization, first, broken),
            *([Evidence("operation that can have made them", singular_gradients.told(operation))] if operation else []),
            Evidence("loss at that step", _number(optimization.steps["loss"][first])),
        ],
        location=misplaced or singular or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.grad_norm(optimization, [Mark(float(begin), "not finite")])
        + pictures.loss(optimization, [Mark(float(begin), "gradient not finite")]),
        diff=diff,
        false_alarm="Non-finite gradients that the script itself detects and discards before the step.",
    )


def _line(optimization: Optimization, operation: str) -> Location | None:
    """The line of the operation that can have made them, where there is only one."""
    process = optimization.process
    if operation == attended_rows.MASKED:
        return attended_rows.place(process)
    return script_lines.singular_of(process, operation.split(", "))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


RULE = Rule(
    id="nonfinite-gradients",
    family="gradients",
    severity="critical",
    title="Gradients are not finite",
    about="A NaN in one gradient reaches every weight through the optimizer, or through clipping by the global norm.",
    check=check,
    verify="Record the run again: every gradient is a number.",
    excluded=(
        "Steps that a loss scaler skipped: no scaler watches these.",
        "A loss that broke first: it was still finite.",
    ),
    absent="The run has no gradient norm.",
    needs=(("steps.grads_nonfinite",), ("steps.grad_norm",)),
    not_when="Overflow that GradScaler caught and skipped, and gradients of a loss that is not finite itself.",
)
