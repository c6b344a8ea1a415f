"""unscaled-accumulation: gradients of several micro-batches are summed, although each loss is a full-size mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask, Table


def check(process: Process, limits: Limits) -> Outcome:
    """Accumulation that shows beyond doubt (one batch per backward), with losses divided by nothing."""
    if len(process.optimizations) > 1:
        return Skipped(accumulation.SEVERAL_OPTIMIZERS, "not-applicable")
    return combine(_check(optimization, limits) for optimization in process.optimizations)


def _check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    steps = optimization.steps
    backwards = steps["backwards"]
    count = int(np.median(backwards[np.isfinite(backwards)])) if np.isfinite(backwards).any() else 1
    if count < 2:
        return Passed("every step has one backward: nothing is accumulated")
    alike = (backwards == count) & accumulation.one_each(optimization)
    if alike.sum() < max(limits["steps"], limits["share"] * len(steps)):
        return Skipped(accumulation.NOT_PER_BATCH, "not-applicable")
    means = steps["loss_is_mean"][alike & steps.known("loss_is_mean")]
    seen_whole = len(means) > 0 and float((means == 1).mean()) >= limits["share"]
    own = [site for site in optimization.process.locations("backward") if ".backward(" in site.source]
    if not own and not seen_whole:
        return Skipped("backward is called by a framework, which may normalise the loss by itself", "not-applicable")
    if _changed_by_hand(steps)[alike].any():
        return Passed(f"{count} backwards per step, and the gradients are changed between backward and step")
    divisor = steps["loss_divisor"][alike]
    known = np.isfinite(divisor)
    whole = float((divisor[known] == 1).mean()) if known.any() else 0.0
    if whole < limits["share"]:
        return Passed(f"{count} backwards per step, and the loss is divided")
    return _finding(optimization, count, whole, limits)


def _changed_by_hand(steps: Table) -> Mask:
    """Steps whose gradients were changed in place, or replaced, by more than clips and a loss scaler, shape [steps]."""
    changes = steps["grads_changes"]
    known = np.nan_to_num(steps["clips"]) + (np.nan_to_num(steps["scaler_use"]) > 0)
    return np.asarray((changes < 0) | (changes > known), dtype=bool)


def _finding(optimization: Optimization, count: int, whole: float, limits: Limits) -> Finding:
    begin = timing.step_at(optimization, 0)
    name = str(optimization.facts.get("name") or "the optimizer")
    matters = name in accumulation.SCALE_MATTERS
    called = "an update by hand" if name == "ByHand" else name
    effect = (
        f"With {called} each update is {count} times as long as that of one large batch, as if the learning rate were."
        if matters
        else f"{name} divides most of that out again, but gradient clipping and logged norms are off by that factor."
    )
    return Finding(
        rule=RULE.id,
        severity="warning" if matters else "info",
        confidence="possible",
        title=f"Gradients of {count} micro-batches are added up, not averaged",
        summary=(
            f"Every step accumulates {count} backwards, one per batch, and {percent(whole)} of the "
            "observed "
            f"losses were not divided by anything. If each loss is a mean over its batch, the gradient is {count} "
            "times too "
            f"large. {effect}"
        ),
        fix=f"Divide the loss by {count}, the number of batches that a step accumulates, before backward (a "
        "compute_loss of the Hugging Face Trainer: a sum over the targets by num_items_in_batch). Leave the learning "
        "rate as it is, unless it was chosen to suit these sums.",
        fix_code=f"(loss / {count}).backward()",
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("backwards per step", count, "", 2, "accumulation starts at two"),
            Evidence("observed losses that were not divided", whole, "share", limits["share"], limits.source("share")),
            Evidence("optimizer", called),
        ],
        location=optimization.backward_location,
        charts=pictures.grad_norm(optimization, [Mark(float(begin), f"{count} backwards per step")]),
        false_alarm="Losses that are sums on purpose, or a learning rate that was chosen for summed gradients.",
    )


RULE = Rule(
    id="unscaled-accumulation",
    family="gradients",
    severity="warning",
    title="Accumulated gradients are not averaged",
    about="Backward adds gradients up. To stand for one large batch, each micro-batch's mean loss has to be divided.",
    check=check,
    verify="Record the run again: losses are divided, and the gradient norm falls by the number of micro-batches.",
    absent="The run does not accumulate gradients.",
    needs=(
        ("steps.backwards", "steps.loss_divisor", "steps.loader_batches"),
        ("steps.backwards", "steps.loss_divisor", "steps.microbatches"),
    ),
    thresholds=(
        Threshold("share", 0.9, "share", "the last window of an epoch may be shorter"),
        Threshold("steps", 10, "steps", "fewer could be a warm-up of some other kind"),
    ),
    not_when="Gradients that are divided before the step, divided or token-weighted losses, several losses per batch, "
    "several optimizers, frameworks unless the loss is seen to be a whole mean.",
)
