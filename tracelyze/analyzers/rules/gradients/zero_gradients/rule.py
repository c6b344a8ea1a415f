"""zero-gradients: every gradient is exactly zero, or missing, step after step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.analyzers.rules.gradients.zero_gradients import another_model, untrainable, without_gradients
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.analyzers.rules.gradients.zero_gradients.without_gradients import Stretch

EFFECT = ": nothing is learned"
SCALED = "Steps that a loss scaler skipped are not counted."


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
        resting = f"; {stretch.resting:,} more had none, at a loss of 0" if stretch.resting else ""
        alive = f"{stretch.alive:,} of {stretch.observed:,} observed steps"
        return Passed(f"{alive} had gradients that were not zero{resting}")
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
    why = stretch.cause(optimization)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain" if len(optimization.process.optimizations) == 1 else "likely",
        title=f"Every gradient{timing.name_of(optimization)} is {what} in {length}",
        summary=f"{when}, all gradients were {what} when the optimizer stepped. {why.said}",
        fix=why.fix,
        fix_code=why.code,
        first_step=number,
        last_step=last,
        first_second=timing.second_at(optimization, stretch.first),
        evidence=[
            Evidence(
                "steps looked at without gradient" if sampled else "steps in a row without gradient",
                stretch.count,
                "steps",
                *limits.against("steps"),
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
        location=why.place or optimization.backward_location,
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
        false_alarm="A loss that is exactly satisfied, so its gradient is rightly zero.",
    )


RULE = Rule(
    id="zero-gradients",
    family="gradients",
    severity="critical",
    title="Every gradient is zero or missing",
    about="An optimizer that steps on zero or missing gradients changes nothing, however long it runs.",
    check=check,
    verify="Record the run again: after backward, gradients exist and are not zero.",
    excluded=("A loss that is exactly zero: such steps are not counted.", SCALED),
    needs=(("steps.parameters", "steps.grads_none"),),
    thresholds=(
        Threshold("steps", 10, "steps", "live networks have no ten steps without a gradient; padding batches may"),
        Threshold("least", 3, "steps", "for a run that never had a gradient"),
    ),
    not_when="Alternating optimizers, steps skipped by GradScaler, losses that become exactly zero during training.",
)
