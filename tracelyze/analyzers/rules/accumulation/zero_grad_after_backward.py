"""zero-grad-after-backward: gradients are cleared between backward and step, so that the step sees none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.script import edits, script_lines
from tracelyze.analyzers.script.editing.optimizers import clearing
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask

FIX = "Clear the gradients before backward or after the step, never in between."
FIX_CODE = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()"


def check(process: Process, limits: Limits) -> Outcome:
    """Steps with a backward whose gradients were gone, and had been there."""
    findings = [
        _finding(optimization, emptied, limits)
        for optimization in process.optimizations
        if (emptied := _emptied(optimization, limits)) is not None
    ]
    return findings or Passed("gradients reach the step that they were computed for")


class Emptied(NamedTuple):
    """The observed steps whose gradients had been cleared. `steps`: bool per row; `first`: the row of the first."""

    steps: Mask
    first: int
    share: float  # of the observed steps


def _emptied(optimization: Optimization, limits: Limits) -> Emptied | None:
    steps = optimization.steps
    observed = (
        steps.known("grads_cleared") & (np.nan_to_num(steps["backwards"], nan=1) > 0) & ~timing.skipped(optimization)
    )
    gone = np.nan_to_num(steps["grads_none"]) + np.nan_to_num(steps["grads_zero"])
    most = limits["tensors"] * steps["parameters"]
    empty = (gone >= most) | ~steps.known("grads_zero")  # clearing to zeros is seen at steps whose values are not
    bad = observed & (steps["grads_cleared"] > 0) & (steps["grads_cleared"] + gone >= most) & empty
    if int(bad.sum()) < limits["steps"] or bad.sum() < limits["share"] * observed.sum():
        return None
    first = int(np.argmax(bad))
    while first > 0 and gone[first - 1] >= most[first - 1] and not observed[first - 1]:
        first -= 1  # whether gradients had been there was not watched yet, that they are missing was
    return Emptied(bad, first, float(bad.sum()) / float(observed.sum()))


def _finding(optimization: Optimization, emptied: Emptied, limits: Limits) -> Finding:
    steps, count = optimization.steps, int(emptied.steps.sum())
    begin = timing.step_at(optimization, emptied.first)
    # Another loss's backward may have filled them on its way, and been cleared rightly: then one of its own is missing.
    alone = _is_alone(optimization)
    remedy = _remedy(optimization)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain" if alone else "likely",
        title=f"Gradients{timing.name_of(optimization)} are cleared between backward and step, in "
        f"{plural(count, 'observed step')}",
        summary=(
            f"In {share_of(emptied.share, 'observed steps')} the gradients were cleared after backward had filled them "
            "and before the optimizer stepped. The step then has no gradients: these weights do not learn; at most, "
            f"they decay.{remedy.why}"
        ),
        fix=remedy.fix
        + (" If the cleared gradients came from another loss, the backward() of this one is missing." * (not alone)),
        fix_code=remedy.code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, emptied.first),
        evidence=[
            Evidence("observed steps without gradients", emptied.share, "share", *limits.against("share")),
            Evidence("gradients cleared before the step", int(np.median(steps["grads_cleared"][emptied.steps])),
                     "tensors", 0, "none in a loop that clears before backward"),
        ],
        cost=timing.cost_of(optimization, timing.trained_steps(optimization)),
        location=remedy.place or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.over_steps(
            optimization, "Gradients missing at the step", "tensors",
            {"missing": "grads_none", "cleared": "grads_cleared", "trainable": "parameters"},
            [Mark(float(begin), "cleared too early")],
        ) + pictures.loss(optimization),
        diff=remedy.diff,
        false_alarm="A program that computes gradients only to inspect them and steps without them on purpose.",
    )  # fmt: skip


def _is_alone(optimization: Optimization) -> bool:
    return len(optimization.process.optimizations) == 1


def _remedy(optimization: Optimization) -> Remedy:
    """The line that clears, or the one that calls the function which does, and where it belongs."""
    process, alone = optimization.process, _is_alone(optimization)
    text = script_lines.only(process, "clear-text") if alone else None  # a handler's, or another method's
    known = optimization.zero_grad_location
    clears = known if clearing.clears(known) else text
    one_backward = np.nanmedian(optimization.steps["backwards"]) <= 1
    called = edits.call_before_backward(optimization, clears) if one_backward and alone else None
    diff = (edits.clear_before_backward(optimization) if one_backward else None) or (called[1] if called else None)
    diff = diff or (edits.clear_behind_the_step(optimization, clears) if alone else None)
    why = script_lines.said(text, "clears gradients") if text is not None and text == clears else ""
    if called and clears:
        why += f" Line {called[0].line} calls {clears.function}."
    place = called[0] if called else clears
    if taken_out := clearing.taken_out(process, clears):
        return Remedy(taken_out, "", place, diff, why)
    return Remedy(FIX, FIX_CODE, place, diff, why)


RULE = Rule(
    id="zero-grad-after-backward",
    family="gradients",
    severity="critical",
    title="Gradients are cleared before the step uses them",
    about="The order must be zero_grad, backward, step. With zero_grad between backward and step, the step has no "
    "gradients.",
    check=check,
    verify="Record the run again: gradients reach the optimizer step, and the loss starts to fall.",
    excluded=(
        "Steps without a backward pass are not counted.",
        "Clearing right after a step: here the gradients were gone before it.",
    ),
    needs=(("steps.grads_cleared", "steps.grads_none", "steps.parameters"),),
    thresholds=(
        Threshold("tensors", 0.9, "share", "zero_grad clears all; a few may have had no gradient at all"),
        Threshold("share", 0.9, "share", "the order of the calls is the same in every step"),
        Threshold("steps", 3, "steps", "one or two could be a deliberate reset"),
    ),
    not_when="Clearing right after the step.",
)
