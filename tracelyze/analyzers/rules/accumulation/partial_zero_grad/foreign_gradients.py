"""Steps that take gradients of another optimizer's loss along with their own, because nobody cleared them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import called
from tracelyze.analyzers.script.editing.optimizers import own_backwards
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits


def finding(optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    """Nearly all tensors of such a step hold both: of a trunk with several heads, a part of them may be meant to."""
    steps = optimization.steps
    present = steps["parameters"] - np.nan_to_num(steps["grads_none"])
    known = steps.known("grads_mixed") & (present > 0) & ~timing.skipped(optimization)
    mixed = known & (steps["grads_mixed"] >= limits["tensors"] * present)
    count, share = int(mixed.sum()), float(mixed.sum()) / max(1, int(known.sum()))
    if count < limits["steps"] or share < limits["mixed"]:
        return None
    first = int(np.argmax(mixed))
    begin = max(1, timing.step_at(optimization, first) - 1)  # A row is about the step before it.
    name = timing.name_of(optimization) or " of this optimizer"
    tensors = int(np.median(present[mixed]))
    own, before = called.assigned(optimization.made_at) or "optimizer", own_backwards.cleared_before(optimization)
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"Gradients of another optimizer's loss are added to those{name}",
        summary=(
            f"In {percent(share)} of the steps{name} that were looked at, all {plural(tensors, 'tensor')} "
            "held gradients of a backward that another optimizer's step had used already, and the next backward was "
            "added to them. That loss runs through both models: the generator's fills the discriminator's gradients, "
            "and the discriminator's those of the generator where its samples are not detached. The step then follows "
            "the sum of two losses that work against each other."
        ),
        fix="Clear each optimizer's gradients right before its own backward, and detach what the other model made.",
        fix_code=before.code if before else f"{own}.zero_grad()  # right before the first backward of its own loss",
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(mixed)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("steps with another loss's gradients", share, "share", *limits.against("mixed")),
            Evidence(
                "tensors with such gradients",
                int(np.median(steps["grads_mixed"][mixed])),
                "tensors",
                0,
                "none where gradients are cleared before each backward",
            ),
            Evidence("tensors with gradients", tensors, "tensors"),
        ],
        cost=timing.cost_of(optimization, mixed),
        location=optimization.zero_grad_location or optimization.step_location,
        charts=pictures.over_steps(
            optimization,
            "Gradients added to those of another optimizer's step",
            "tensors",
            {"mixed": "grads_mixed", "trainable": "parameters"},
            [Mark(float(begin), "first mixed gradients")],
        ),
        false_alarm="Two losses that one optimizer is to follow in sum, each with a step of another optimizer between.",
    )
