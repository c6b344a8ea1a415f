"""zero-gradients: every gradient is exactly zero, or missing, step after step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.gradients import another_model, untrainable, without_gradients
from tracelyze.analyzers.evidence import pictures, script_lines, timing
from tracelyze.analyzers.rule import Limits, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.gradients.without_gradients import Stretch
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.diagnosis import Location

EFFECT = ": nothing is learned"
SCALED = "Steps that a loss scaler skipped are not counted."
ANEW = "Keep the tensors that the model gave, and join them by functions that have a gradient: stack, sum, mean."
JOINED = "loss = torch.stack(terms).sum()   # instead of torch.tensor(terms, requires_grad=True).sum()"


@each_optimization
def check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    """The longest stretch of observed steps without a single gradient that is not zero."""
    trained = timing.trained_steps(optimization)
    if untrainable.is_so(optimization, trained, int(limits["steps"])):
        return untrainable.finding(optimization, trained, RULE.id)
    stretch = without_gradients.longest(optimization, trained)
    if not isinstance(stretch, without_gradients.Stretch):
        return stretch
    alone = len(optimization.process.optimizations) == 1
    enough = stretch.count >= limits["steps"] or (stretch.whole and stretch.count >= limits["least"])
    if not enough or not (alone or stretch.whole):  # beside others, an optimizer may rest for a while
        return Passed(f"{stretch.alive:,} of {stretch.observed:,} observed steps had gradients that were not zero")
    affected = np.zeros(len(optimization.steps), dtype=bool)
    affected[stretch.first : stretch.last + 1] = True
    reached = another_model.reached_instead(optimization) if stretch.missing and stretch.whole else None
    if reached is not None:
        return another_model.finding(optimization, reached, affected, stretch.first, RULE.id)
    return _finding(optimization, stretch, affected, limits)


def _finding(optimization: Optimization, stretch: Stretch, affected: Mask, limits: Limits) -> Finding:
    steps, number = optimization.steps, timing.step_at(optimization, stretch.first)
    what = "None" if stretch.missing else "exactly zero"
    count, last = plural(stretch.count, "step"), timing.step_at(optimization, stretch.last)
    span, sampled = f"from step {number:,} to {last:,}", stretch.sampled if stretch.whole else stretch.gaps
    if sampled:
        length = f"all {count} looked at" + (EFFECT if stretch.whole else f", {span}")
        when = f"At all {count} that were looked at {span}"
    elif stretch.whole:
        length, when = f"all {count}{EFFECT}", f"From step {number:,} on, in the whole run"
    else:
        length, when = f"{count} in a row{EFFECT}", f"In the {count} {span}"
    anew = script_lines.made_anew(optimization.process) if stretch.missing and stretch.whole else None
    cut = anew or (script_lines.cut(optimization.process) if stretch.missing else None)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain" if len(optimization.process.optimizations) == 1 else "likely",
        title=f"Every gradient{timing.name_of(optimization)} is {what} in {length}",
        summary=f"{when}, all gradients were {what} when the optimizer stepped. {_cause(stretch, cut, anew)}",
        fix=ANEW
        if anew
        else "Follow the loss back to the parameters: print loss.grad_fn, and which parameters have a gradient after "
        "backward.",
        fix_code=JOINED
        if anew
        else "loss.backward()\nprint([n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()])",
        first_step=number,
        last_step=last,
        first_second=timing.second_at(optimization, stretch.first),
        evidence=[
            Evidence(
                "steps looked at without gradient" if sampled else "steps in a row without gradient",
                stretch.count,
                "steps",
                limits["steps"],
                limits.source("steps"),
            ),
            Evidence("trainable tensors", int(steps["parameters"][stretch.first]), "tensors"),
            Evidence(
                "of them with gradient None",
                int(np.nan_to_num(steps["grads_none"])[stretch.first]),
                "tensors",
                role="basis",
            ),
        ],
        cost=timing.cost_of(optimization, affected),
        location=cut or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.over_steps(
            optimization,
            "Gradients that are missing or zero",
            "tensors",
            {"None": "grads_none", "zero": "grads_zero", "trainable": "parameters"},
            [Mark(float(number), "no gradient")],
        )
        + pictures.loss(optimization),
        excluded=[SCALED] if stretch.without_loss else [],  # else what the rule excludes
        false_alarm="A loss that is satisfied exactly, so that its gradient is rightly zero.",
    )


def _cause(stretch: Stretch, cut: Location | None, anew: Location | None) -> str:
    """What leaves gradients like these. `anew`: the line that makes a tensor out of numbers, beside the backward."""
    if anew is not None:
        return f"Line {anew.line} makes a tensor out of numbers, which has no graph: no gradient goes beyond it."
    if stretch.missing:
        return (
            "Nothing is learned from such steps: the loss is cut off from these parameters (detach, .data, no_grad, "
            "numpy), the optimizer holds another model's, or zero_grad() comes between backward and step."
            + script_lines.said(cut, "cuts a graph", "outside of loop and evaluation")
        )
    if stretch.without_loss:
        return (
            "The loss is exactly 0 from the first step to the last, and no gradient comes of it. Advantages that are "
            "all zero do this, a softmax or a cross-entropy over a single class, terms that cancel, a mask that hides "
            "everything."
        )
    return (
        "Nothing is learned from such steps: units are dead, an output is saturated or clamped, the loss is multiplied "
        "by zero or masked whole, or gradients are zeroed between backward and step."
    )


RULE = Rule(
    id="zero-gradients",
    family="gradients",
    severity="critical",
    title="Every gradient is zero or missing",
    about="An optimizer that steps on zero or missing gradients changes nothing, however long it runs.",
    check=check,
    verify="Record the run again: after backward, gradients are there and not zero.",
    excluded=("A loss that is exactly zero: such steps are not counted.", SCALED),
    needs=(("steps.parameters", "steps.grads_none"),),
    thresholds=(
        Threshold("steps", 10, "steps", "live networks have no ten steps without a gradient; padding batches may"),
        Threshold("least", 3, "steps", "for a run that never had a gradient"),
    ),
    not_when="Alternating optimizers, steps skipped by GradScaler, losses that become exactly zero on the way.",
)
