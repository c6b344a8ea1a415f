"""zero-gradients: every gradient is exactly zero, or missing, step after step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.gradients import another_model, untrainable
from tracelyze.analyzers.evidence import pictures, script_lines, timing
from tracelyze.analyzers.rule import Limits, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


@each_optimization
def check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    """The longest stretch of observed steps without a single gradient that is not zero."""
    steps = optimization.steps
    none, zero = np.nan_to_num(steps["grads_none"]), np.nan_to_num(steps["grads_zero"])
    trained = timing.trained_steps(optimization)
    if untrainable.is_so(optimization, trained, int(limits["steps"])):
        return untrainable.finding(optimization, trained, RULE.id)
    dead = none + zero >= steps["parameters"]
    usable = trained & steps.known("grads_none") & (steps["parameters"] > 0)
    observed = usable & (steps.known("grads_zero") | dead)  # whether gradients are zero is looked at now and then
    satisfied = steps["loss"] == 0  # a hinge that is satisfied has no gradient, rightly
    never = bool(satisfied[observed].all())  # there was nothing to be satisfied
    if never and not dead[observed].all():
        return Passed("the loss reads 0 at every step, and gradients that are not zero come of it all the same")
    rows = np.flatnonzero(observed if never else observed & ~satisfied)
    if not len(rows):
        return Skipped("no sampled step had a backward, trainable tensors and a loss other than zero")
    begin, end = statistics.longest_run(dead[rows])
    whole = end - begin == len(rows)
    alone = len(optimization.process.optimizations) == 1
    enough = end - begin >= limits["steps"] or (whole and end - begin >= limits["least"])
    if not enough or not (alone or whole):  # beside others, an optimizer may rest for a while
        return Passed(f"{int((~dead[rows]).sum()):,} of {len(rows):,} observed steps had gradients that were not zero")
    first, last = int(rows[begin]), int(rows[end - 1])
    missing = bool((none[rows[begin:end]] >= steps["parameters"][rows[begin:end]]).all())
    what = "None" if missing else "exactly zero"
    count = plural(end - begin, "step")
    stretch = f"all {count}{' looked at' if len(rows) < trained.sum() else ''}" if whole else f"{count} in a row"
    change = script_lines.cut(optimization.process) if missing else None
    number = timing.step_at(optimization, first)
    affected = np.zeros(len(steps), dtype=bool)
    affected[first : last + 1] = True
    reached = another_model.reached_instead(optimization) if missing and whole else None
    if reached is not None:
        return another_model.finding(optimization, reached, affected, first, RULE.id)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain" if alone else "likely",
        title=f"Every gradient{timing.name_of(optimization)} is {what} in {stretch}: nothing is learned",
        summary=(
            f"From step {number} on, all gradients were {what} when the optimizer stepped"
            f"{', in the whole run' if whole else ''}. Nothing is learned from such steps. "
            + (
                "Either backward never reaches these parameters: the loss is cut off from them (detach, .data, "
                "no_grad, numpy on the way), or the optimizer holds another model's. Or zero_grad() comes between "
                "backward and step." + script_lines.said(change, "cuts a graph", "outside of loop and evaluation")
                if missing
                else "The loss is exactly 0 from the first step to the last, and no gradient comes of it. "
                "Advantages that are all zero do this, a softmax or a cross-entropy over a single class, terms that "
                "cancel, a mask that hides everything."
                if never
                else "Zero gradients mean that the loss does not react: dead units, a saturated or clamped output, a "
                "loss multiplied by zero, a mask that hides everything, or gradients that are zeroed between "
                "backward and step."
            )
        ),
        fix="Follow the loss back to the parameters: print loss.grad_fn, and which parameters have a gradient after "
        "backward.",
        fix_code="loss.backward()\nprint([n for n, p in model.named_parameters() if p.grad is None or not "
        "p.grad.any()])",
        first_step=number,
        last_step=timing.step_at(optimization, last),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence(
                "observed steps in a row without gradient",
                end - begin,
                "steps",
                limits["steps"],
                limits.source("steps"),
            ),
            Evidence("trainable tensors", int(steps["parameters"][first]), "tensors"),
            Evidence("of them with gradient None", int(none[first]), "tensors"),
        ],
        cost=timing.cost_of(optimization, affected),
        location=change or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.over_steps(
            optimization,
            "Gradients that are missing or zero",
            "tensors",
            {"None": "grads_none", "zero": "grads_zero", "trainable": "parameters"},
            [Mark(float(number), "no gradient")],
        )
        + pictures.loss(optimization),
        false_alarm="A loss that is satisfied exactly, so that its gradient is rightly zero.",
    )


RULE = Rule(
    id="zero-gradients",
    family="gradients",
    severity="critical",
    title="Every gradient is zero or missing",
    about="An optimizer that steps on zero or missing gradients changes nothing, however long it runs.",
    check=check,
    verify="Record the run again: after backward, gradients are there and not zero.",
    excluded=(
        "A loss that is exactly zero: such steps are not counted.",
        "Steps that a loss scaler skipped are not counted.",
    ),
    needs=(("steps.parameters", "steps.grads_none"),),
    thresholds=(
        Threshold(
            "steps", 10, "steps", "live networks have no ten steps without a single gradient; padding batches may"
        ),
        Threshold("least", 3, "steps", "for a run that never had a gradient"),
    ),
    not_when="Alternating optimizers, steps skipped by GradScaler, losses that become exactly zero on the way.",
)
