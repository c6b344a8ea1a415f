"""partial-zero-grad: some parameters' gradients are cleared between steps, others pile up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.gradients import clearing_remedy
from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.accumulation.partial_zero_grad import foreign_gradients
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask


def check(process: Process, limits: Limits) -> Outcome:
    """Steps that consumed old gradients on a part of their tensors, on and on."""
    findings = [found for optimization in process.optimizations if (found := _find(optimization, limits)) is not None]
    if not findings:
        mixed = [foreign_gradients.finding(optimization, RULE.id, limits) for optimization in process.optimizations]
        findings = [one for one in mixed if one is not None]
    return findings or Passed("no optimizer keeps using old gradients of a part of its tensors")


def _find(optimization: Optimization, limits: Limits) -> Finding | None:
    steps = optimization.steps
    present = steps["parameters"] - np.nan_to_num(steps["grads_none"])
    usable = steps.known("grads_carried") & (present > 0) & ~timing.skipped(optimization)
    part = usable & (steps["grads_carried"] > 0)
    alone = accumulation.another_is_cleared(optimization, 1 - limits["share"])  # all of one of several optimizers
    if not alone:
        part &= steps["grads_carried"] < limits["tensors"] * present
    if int(part.sum()) < limits["steps"]:
        return None
    first = int(np.argmax(part))
    behind = accumulation.cleared_for_validation(optimization)
    behind[:first] = False
    share = float(part.sum()) / float((usable & ~behind)[first:].sum())
    if share < limits["share"]:
        return None
    return _finding(optimization, part, usable & ~behind, bool(behind.any()), alone, limits)


def _finding(
    optimization: Optimization, part: Mask, looked_at: Mask, validated: bool, alone: bool, limits: Limits
) -> Finding:
    """`part`: the steps with old gradients, among those `looked_at`, shape [steps]. `validated`: something clears them
    around a validation. `alone`: they are all of one of several optimizers."""
    steps, first = optimization.steps, int(np.argmax(part))
    share = float(part.sum()) / float(looked_at[first:].sum())
    begin = timing.step_at(optimization, first)
    name = timing.name_of(optimization)
    present = steps["parameters"] - np.nan_to_num(steps["grads_none"])
    tensors, of = int(np.median(steps["grads_carried"][part])), int(np.median(present[part]))
    whole, which = tensors == of, f"{tensors} of {of}"
    behind = " but the first behind each validation" if validated else ""
    others = f"all steps{{of}}{behind}" if validated and share == 1 else f"{percent(share)} of the steps{{of}}{behind}"
    kept = f"{which} tensors kept their old gradients in {others.format(of='')}, while the others were cleared"
    if whole:
        which, kept = "The", f"{others.format(of=name)} used gradients that the step before had used already"
    remedy = clearing_remedy.of_part(optimization, alone, whole)
    missed = (
        f"Another optimizer's gradients are cleared at each step; those{name} are not."
        if alone
        else "The clearing call misses them: it clears a module, parameters or an optimizer without them."
    )
    sometimes, earlier = share < 1 or validated, accumulation.was_cleared_before(optimization, first)
    how_often = "hardly ever" if sometimes else "no longer" if earlier else "never"
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain",
        title=f"{which} gradients{name} are {how_often} cleared",
        summary=(
            f"From step {begin:,} on, {kept}. These parameters follow the sum of all their gradients"
            + (" since these were cleared last. " if sometimes or earlier else ". ")
            + missed
            + remedy.why
        ),
        fix=remedy.fix,
        fix_code=remedy.example,
        first_step=begin,
        last_step=timing.seen_until(optimization, part, looked_at, limits["steps"]),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("steps that used old gradients", share, "share", *limits.against("share")),
            Evidence("tensors with old gradients", tensors, "tensors", 0, "none in a loop that clears its gradients"),
            Evidence("tensors with gradients", of, "tensors"),
        ],
        location=remedy.line,
        seen_at=remedy.seen_at,
        charts=pictures.over_steps(
            optimization,
            "Gradients that an earlier step had already used",
            "tensors",
            {"carried over": "grads_carried", "trainable": "parameters"},
            [Mark(float(begin), "first old gradients")],
        ),
        false_alarm="A part of the model that accumulates gradients over several steps on purpose.",
        diff=remedy.edit,
    )


RULE = Rule(
    id="partial-zero-grad",
    family="gradients",
    severity="critical",
    title="Some gradients are never cleared",
    about="If only a sub-module or one of two optimizers is cleared, the other gradients pile up unnoticed.",
    check=check,
    verify="Record the run again: no tensor keeps old gradients at a step.",
    excluded=(
        "Frozen parameters: they have no gradient to keep.",
        "An optimizer that clears at its own pace: tensors are counted for the optimizer that used them.",
    ),
    needs=(("steps.grads_carried", "steps.parameters"),),
    thresholds=(
        Threshold("tensors", 0.9, "share", "above it nearly nothing is cleared: that is missing-zero-grad"),
        Threshold("share", 0.9, "share", "what is left out of the clearing is left out every time"),
        Threshold("steps", 10, "steps", "longer than the odd step around a change of phase"),
        Threshold("mixed", 0.1, "share", "of the steps: a critic that steps ten times for each of the generator's"),
    ),
    not_when="Frozen parameters, optimizers that clear their own gradients less often (GAN), two optimizers that use "
    "the same last backward, losses summed over parts of a model on purpose.",
)
