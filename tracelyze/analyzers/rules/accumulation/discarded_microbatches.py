"""discarded-microbatches: gradients are cleared between the micro-batches of a step; only the last one counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing.optimizers import clearing
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import capitalized, percent, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask

BY_HAND = r"\.grad\s*=\s*None\b"


def check(process: Process, limits: Limits) -> Outcome:
    """Steps with several backwards, one for each micro-batch, and gradients that were gone in between."""
    if len(process.optimizations) > 1:
        return Skipped(accumulation.SEVERAL_OPTIMIZERS, "not-applicable")
    return _check(process.optimizations[0], limits)


def _check(optimization: Optimization, limits: Limits) -> Outcome:
    steps = optimization.steps
    several = steps["backwards"] > 1
    watched = several & steps.known("grads_discarded") & ~timing.skipped(optimization)
    bad = watched & (steps["grads_discarded"] > 0)
    if not several.any():
        return Skipped("every step has one backward: nothing is accumulated", "not-applicable")
    if not bad.any():
        return Passed("no gradient was cleared between the backwards of a step, where that was watched")
    if bad.sum() < limits["steps"] or bad.sum() < limits["share"] * watched.sum():
        return Passed(f"gradients were cleared between backwards in {int(bad.sum())} steps of {int(watched.sum()):,}")
    if not steps.known("grads_cleared")[bad].any():
        return Skipped(
            "the backwards run inside the step (a closure, as LBFGS takes), which clears between them", "not-applicable"
        )
    batches = bad & accumulation.one_each(optimization)
    if batches.sum() < limits["share"] * bad.sum():
        return Skipped(accumulation.NOT_PER_BATCH, "not-applicable")
    if (steps["clips"][bad] >= steps["backwards"][bad]).mean() > limits["clipped"]:
        return Skipped("gradients are clipped after each backward and then cleared: their sum may be kept elsewhere")
    changes = steps["grads_changes"][bad]
    by_hand = (changes < 0) | ((changes > 0) & (np.nan_to_num(steps["clips"][bad]) == 0))
    if by_hand.sum() >= limits["share"] * len(changes):
        return Skipped("the gradients of each step are replaced or changed by hand: their sum may be kept elsewhere")
    return [_finding(optimization, bad, float(bad.sum() / watched.sum()), limits)]


def _finding(optimization: Optimization, bad: Mask, share: float, limits: Limits) -> Finding:
    steps = optimization.steps
    first = int(np.argmax(bad))
    if first == 1 and not steps.known("grads_discarded")[0]:
        first = 0  # the very first backwards are not watched yet
    begin = timing.step_at(optimization, first)
    count = int(np.median(steps["backwards"][bad]))
    gone = int(np.median(steps["grads_discarded"][bad]))
    filled = int(np.median((steps["parameters"] - np.nan_to_num(steps["grads_none"]))[bad]))
    line = script_lines.only(optimization.process, "clears")
    by_hand = script_lines.only(optimization.process, "grad-set", BY_HAND) if line is None else None
    whole = gone >= limits["tensors"] * filled
    gradients = "the gradients" if whole else f"{gone} of {filled} gradients"
    each = whole and (count == 2 or clearing.beside_each_backward(optimization, line or by_hand))
    lost = (count - 1) / count if each else 1 / count
    who = f"line {line.line} clears {gradients}" if line is not None else f"{gradients} are cleared"
    fix, code = clearing.between_backwards(optimization, line or by_hand)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain",
        title=f"{count - 1} of {count} micro-batches are thrown away: {who} between the backwards"
        if each
        else f"{capitalized(who)} between the {count} backwards of a step",
        summary=(
            f"A step runs {count} backwards, one for each micro-batch. In {share_of(share, 'observed steps')} "
            f"{gradients} were cleared between them. "
            + (
                f"The step sees only the last micro-batch: {percent(lost)} of the computation is wasted, and the "
                f"effective batch is {count} times too small."
                if each
                else "What the micro-batches before the last clearing had added to these is lost: the step does not "
                "see it."
            )
            + (f" Line {by_hand.line} sets gradients to None: {by_hand.source}." if by_hand else "")
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("steps with gradients cleared between backwards", share, "share", *limits.against("share")),
            Evidence("backwards per step", count, "", 2, "accumulation starts at two"),
            Evidence("gradients cleared between them", gone, "tensors", 0, "none in a loop that accumulates"),
        ],
        cost=timing.scaled(timing.cost_of(optimization, bad), lost) if whole else None,
        location=line or by_hand or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.over_steps(
            optimization, "Gradients cleared between the backwards of a step", "tensors",
            {"cleared": "grads_discarded", "trainable": "parameters"}, [Mark(float(begin), "cleared too often")],
        ) + pictures.loss(optimization),
        false_alarm="A loop that sums the gradients of its micro-batches in tensors of its own.",
    )  # fmt: skip


RULE = Rule(
    id="discarded-microbatches",
    family="gradients",
    severity="critical",
    title="Gradients are cleared between micro-batches",
    about=(
        "Accumulation sums the gradients of several micro-batches before one step. With zero_grad before every "
        "backward nothing adds up: all micro-batches but the last are wasted."
    ),
    check=check,
    verify="Record the run again: no step clears gradients between its backwards.",
    excluded=(
        "Sums that the script keeps itself: the step uses the gradients as the last backward left them.",
        "Two passes over one batch (sharpness-aware minimisation): each backward has a batch of its own.",
    ),
    absent="The run does not accumulate gradients.",
    needs=(("steps.grads_discarded", "steps.backwards"),),
    thresholds=(
        Threshold("share", 0.9, "share", "the order of the calls is the same in every step"),
        Threshold("steps", 3, "steps", "one or two could be batches that the loop gave up"),
        Threshold("tensors", 0.9, "share", "of the gradients: with fewer, a part of the model accumulates"),
        Threshold(
            "clipped", 0.5, "share", "most of these steps: a sum kept elsewhere is a habit, one clip more is not"
        ),
    ),
    not_when="Clearing once per step, closures (LBFGS), two passes over one batch (SAM), several optimizers.",
)
