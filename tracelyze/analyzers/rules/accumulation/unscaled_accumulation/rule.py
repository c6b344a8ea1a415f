"""unscaled-accumulation: gradients of several micro-batches are summed, although each loss is a full-size mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.analyzers.rules.accumulation.unscaled_accumulation import divided_twice
from tracelyze.analyzers.script.loss import of_trainer
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask, Table
    from tracelyze.diagnosis import Location


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
        return Skipped("every step has one backward: nothing is accumulated", "not-applicable")
    alike = (backwards == count) & accumulation.one_each(optimization)
    if alike.sum() < max(limits["steps"], limits["share"] * len(steps)):
        return Skipped(accumulation.NOT_PER_BATCH, "not-applicable")
    seen_whole = accumulation.losses_are_means(optimization, alike, limits["share"])
    own = any(".backward(" in line.source for line in accumulation.backwards(optimization))
    if not own and not seen_whole:
        return Skipped("backward is called by a framework, which may normalise the loss by itself", "not-applicable")
    if _changed_by_hand(steps)[alike].any():
        return Passed(f"{count} backwards per step, and the gradients are changed between backward and step")
    if (twice := divided_twice.finding(optimization, alike, count, RULE.id, limits)) is not None:
        return twice
    divisor = steps["loss_divisor"][alike]
    known = np.isfinite(divisor)
    whole = float((divisor[known] == 1).mean()) if known.any() else 0.0
    if whole < limits["share"]:
        return Passed(f"{count} backwards per step, and the loss is divided")
    return _finding(optimization, count, whole, not own, seen_whole, limits)


def _changed_by_hand(steps: Table) -> Mask:
    """Steps whose gradients were changed in place, or replaced, by more than clips and a loss scaler, shape [steps]."""
    changes = steps["grads_changes"]
    known = np.nan_to_num(steps["clips"]) + (np.nan_to_num(steps["scaler_use"]) > 0)
    return np.asarray((changes < 0) | (changes > known), dtype=bool)


def _finding(
    optimization: Optimization, count: int, whole: float, by_framework: bool, means: bool, limits: Limits
) -> Finding:
    begin = timing.step_at(optimization, 0)
    name = str(optimization.facts.get("name") or "the optimizer")
    matters = name in accumulation.SCALE_MATTERS
    called = "an update by hand" if name == "ByHand" else name
    cut, clips = accumulation.cut(optimization.steps), accumulation.clips(optimization.steps)
    at_most, but = ("up to ", f": clipping cut it in {share_of(cut, 'steps')}") if cut else ("", "")
    effect = (
        f"With {called} each update is {at_most}{count} times as large as that of one large batch, as if the learning "
        f"rate were {count} times higher{but}."
        if matters
        else f"{name} {'divides' if accumulation.evens_out(name) else 'may divide'} most of that out again, but "
        f"{'gradient clipping and ' * clips}logged gradient norms are off by that factor."
    )
    computes = of_trainer.method(optimization) if by_framework else None
    fix, code = of_trainer.remedy(optimization, count)
    mean = "Each loss is a mean over its batch:" if means else "If each loss is a mean over its batch,"
    logged = ", and so is the training loss that the Trainer logs" if computes else ""
    all_of_them = percent(whole) == percent(1.0)
    undivided = "no loss that was looked at was" if all_of_them else f"{percent(whole)} of the observed losses were not"
    # What transformers' own models do under its own Trainer is nobody's mistake who uses them: that is a hint.
    of_library = by_framework and (
        "super()." in computes.source
        if computes
        else _line(optimization.loss_location) == _line(optimization.backward_location) and not _asked(optimization)
    )
    harms = (matters or (by_framework and clips)) and not of_library
    return Finding(
        rule=RULE.id,
        severity="warning" if harms else "info",
        confidence="likely" if by_framework else "possible",
        title=f"Gradients of {count} micro-batches are added up, not averaged",
        summary=(
            f"Every step accumulates {count} backwards, one for each micro-batch, and {undivided} divided by anything. "
            f"{mean} the gradient is {count} times too large{logged}. "
            f"{effect}"
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("backwards per step", count, "", 2, "accumulation starts at two"),
            Evidence("observed losses that were not divided", whole, "share", *limits.against("share")),
            Evidence("optimizer", called),
        ],
        location=of_trainer.mean(optimization) or computes or optimization.loss_location,
        seen_at=optimization.backward_location,
        charts=pictures.grad_norm(optimization, [Mark(float(begin), f"{count} backwards per step")]),
        false_alarm="Losses that are sums on purpose, or a learning rate tuned for summed gradients.",
    )


def _asked(optimization: Optimization) -> bool:
    """Whether the script asks a framework for the backward of a loss of its own, `self.manual_backward(loss)`."""
    place = optimization.backward_location
    return place is not None and "backward(" in place.source


def _line(place: Location | None) -> tuple[str, int] | None:
    return None if place is None else place.file_line


RULE = Rule(
    id="unscaled-accumulation",
    family="gradients",
    severity="warning",
    title="Accumulated gradients are not averaged",
    about="Each backward adds to the gradients. To match one large batch, divide each micro-batch's mean loss by "
    "their number, once.",
    check=check,
    verify="Record the run again: each loss is divided once, by the micro-batches of a step or by what they all hold.",
    absent="The run does not accumulate gradients.",
    needs=(
        ("steps.backwards", "steps.loss_divisor", "steps.loader_batches"),
        ("steps.backwards", "steps.loss_divisor", "steps.microbatches"),
    ),
    thresholds=(
        Threshold("share", 0.9, "share", "the last window of an epoch may be shorter"),
        Threshold("steps", 10, "steps", "fewer could be a warm-up of some other kind"),
        Threshold("looked", 3, "steps", "whose losses are all divided alike: one or two may agree by chance"),
    ),
    not_when="Gradients divided before the step, divided or token-weighted losses, several losses per batch, several "
    "optimizers, frameworks unless the loss was seen to be an undivided mean.",
)
