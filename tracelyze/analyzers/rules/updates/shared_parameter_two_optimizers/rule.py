"""shared-parameter-two-optimizers: two optimizers step the same tensors, on one backward's gradients or in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.updates.shared_parameter_two_optimizers import shared_tensors
from tracelyze.analyzers.script import called
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import end_of_name, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Optimizers that hold a tensor of another one, and step on the same backward, or turn by turn."""
    optimizations = {one.optimizer: one for one in process.optimizations}
    if len(optimizations) < 2:
        return Skipped("the run has one optimizer", "not-applicable")
    rows = [row for row in process.optimizers.records() if row["shares"] and row["optimizer"] in optimizations]
    held = {row["optimizer"]: row["parameters"] for row in process.optimizers.records()}
    findings = []
    for row in rows:
        one, other = optimizations[row["optimizer"]], optimizations.get(row["shares_with"])
        if other is not None:
            both = _same_backward(one, other)
            if both[0] >= limits["steps"] and both[1] >= limits["share"]:
                findings.append(_finding(one, other, row, both, limits))
            elif row["shares"] < max(row["parameters"], held[other.optimizer]):  # else one may stand for the other
                turns, steps = _turns(one, other), min(len(one.steps["time"]), len(other.steps["time"]))
                if turns >= max(limits["steps"], limits["turns"] * steps):
                    findings.append(_in_turns(one, other, row, turns, limits))
    if findings:
        return sorted(findings, key=lambda finding: finding.severity == "info")[:1]
    if not rows:
        return Passed(f"no tensor is held by two of the {len(optimizations)} optimizers at the same time")
    return Passed("optimizers that hold the same tensors step on backwards of their own")


def _same_backward(one: Optimization, other: Optimization) -> tuple[int, float]:
    """Steps with a partner of the other optimizer right before that saw the same loss, and their share."""
    first, second = one.steps, other.steps
    at = np.searchsorted(second["time"], first["time"]) - 1
    usable = (at >= 0) & np.isfinite(first["loss"])
    if not usable.any():
        return 0, 0.0
    same = usable & (first["loss"] == second["loss"][np.maximum(at, 0)])
    return int(same.sum()), float(same.sum() / usable.sum())


def _turns(one: Optimization, other: Optimization) -> int:
    """How often the other optimizer steps between two steps of the first one."""
    between = np.searchsorted(other.steps["time"], one.steps["time"])
    return int(np.count_nonzero(np.diff(between)))


def _tensors(row: dict[str, Any]) -> str:
    """For a title: the first of several tensors by its name, and how many others there are."""
    first, others = str(row["shared_names"] or "").split(", ")[0], row["shares"] - 1
    if not (first and others):
        return plural(row["shares"], "tensor")
    return f"{end_of_name(first, 36)} and {plural(others, 'other tensor')}"


def _named(row: dict[str, Any]) -> str:
    """For a sentence: how many tensors, and what the first of them are called."""
    names = row["shared_names"]
    return plural(row["shares"], "tensor") + (f" ({names})" if names else "")


def _in_turns(one: Optimization, other: Optimization, row: dict[str, Any], turns: int, limits: Limits) -> Finding:
    names = [called.optimizer(optimization) for optimization in (other, one)]
    return Finding(
        rule=RULE.id,
        severity="info",
        confidence="likely",
        title=f"{_tensors(row)} {'are' if row['shares'] > 1 else 'is'} trained by two optimizers in turn",
        summary=(
            f"{names[0]} and {names[1]} both hold {_named(row)} and step in turn, each after a backward of its own. "
            "Each has its own learning rate, moments and weight decay, so one optimizer may undo what the other does."
        ),
        fix="If this is not on purpose: add the weighted losses and give all tensors to one optimizer, or detach the "
        "shared part's output for one of the two losses.",
        fix_code="loss = actor_loss + 0.5 * critic_loss\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()",
        first_step=timing.step_at(one, 0),
        last_step=timing.last_step(one),
        evidence=[
            Evidence("tensors that both hold", row["shares"], "tensors", 0, "one optimizer is enough for a tensor"),
            Evidence("turns", turns, "turns", *limits.against("steps")),
        ],
        location=one.made_at or one.step_location,
        seen_at=one.step_location,
        false_alarm="Losses that alternate by design, with learning rates chosen for that.",
    )


def _finding(
    one: Optimization, other: Optimization, row: dict[str, Any], both: tuple[int, float], limits: Limits
) -> Finding:
    names = [called.optimizer(optimization) for optimization in (other, one)]
    remedy = shared_tensors.remedy(one, other, row["shares"], str(row["shared_names"] or ""))
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"{_tensors(row)} {'are' if row['shares'] > 1 else 'is'} updated by two optimizers in every step",
        summary=(
            f"{names[0]} and {names[1]} both hold {_named(row)}, and both step after the same backward, in "
            f"{share_of(both[1], 'steps')}. {shared_tensors.effect(one, other)}"
            + shared_tensors.tied(one, str(row["shared_names"] or ""))
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        diff=remedy.diff,
        first_step=timing.step_at(one, 0),
        last_step=timing.last_step(one),
        evidence=[
            Evidence("tensors that both hold", row["shares"], "tensors", 0, "one optimizer is enough for a tensor"),
            Evidence("steps of both after one backward", both[1], "share", *limits.against("share")),
        ],
        location=remedy.place or one.step_location,
        seen_at=one.step_location,
        charts=pictures.loss(one),
        false_alarm="Two kinds of update of one tensor that are meant to add up.",
    )


RULE = Rule(
    id="shared-parameter-two-optimizers",
    family="gradients",
    severity="warning",
    title="Two optimizers update the same tensors",
    about="A tensor in two optimizers that step on the same gradients is updated twice.",
    check=check,
    verify="Record the run again: no tensor is held by two optimizers.",
    excluded=("Optimizers that take turns, each after a backward of its own: both saw the same loss.",),
    needs=(("steps.loss", "optimizers.parameters"),),
    thresholds=(
        Threshold("steps", 10, "steps", "the odd step where one optimizer takes over from another"),
        Threshold("share", 0.9, "share", "a line of code does it in every step"),
        Threshold("turns", 0.5, "share", "of the steps of the rarer one: a habit, not one optimizer after the other"),
    ),
    not_when="Optimizers for different tensors, or used one after the other. Optimizers that alternate, each after "
    "its own backward, are only reported as info.",
)
