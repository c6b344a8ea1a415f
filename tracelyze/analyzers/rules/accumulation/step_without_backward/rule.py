"""step-without-backward: the optimizer steps again and again although no backward came since its last step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.analyzers.rules.accumulation.step_without_backward import repeated_steps
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask


def check(process: Process, limits: Limits) -> Outcome:
    """Steps without a backward among steps that had one."""
    if len(process.optimizations) > 1:
        answers = [_check_beside_others(optimization, limits) for optimization in process.optimizations]
        found = [answer for answer in answers if isinstance(answer, Finding)]
        return found or next((answer for answer in answers if isinstance(answer, Skipped)), combine(answers))
    return _check(process.optimizations[0], limits)


def _check_beside_others(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    """Another optimizer's step may have counted the backward of a step, so only gradients that stayed tell."""
    backwards, norm = optimization.steps["backwards"], optimization.steps["grad_norm"]
    known = np.isfinite(backwards) & ~timing.skipped(optimization)
    idle = known & (backwards == 0)
    share = float(idle.sum() / max(1, known.sum()))
    if idle.sum() < limits["steps"] or share < limits["share"]:
        return Passed(f"{int(idle.sum()):,} of {int(known.sum()):,} steps had no backward pass of their own")
    if np.isfinite(optimization.steps["clip_max_norm"]).any():  # clipped to one norm, other gradients look the same
        return Skipped("several optimizers, and clipped norms do not tell whether gradients are those of another step")
    repeated, compared = _repeated(optimization, idle & (norm > 0))
    by_chance, fresh = _repeated(optimization, known & (backwards > 0) & (norm > 0))
    if min(compared, fresh) < limits["steps"]:
        return Skipped("several optimizers: one may step on gradients whose backward another one's step has counted")
    if repeated < limits["beside"] * compared or by_chance > (1 - limits["beside"]) * fresh:
        return Passed("steps without a backward of their own had other gradients than the step before")
    return _finding(optimization, idle, share, False, limits)


def _check(optimization: Optimization, limits: Limits) -> Outcome:
    backwards = optimization.steps["backwards"]
    known = np.isfinite(backwards) & ~timing.skipped(optimization)
    idle = known & (backwards == 0)
    if not (backwards[known] > 0).any():
        return Skipped(
            "no step had a backward of its own: the gradients come from somewhere else (autograd.grad)",
            "not-applicable",
        )
    count, share = int(idle.sum()), float(idle.sum() / known.sum())
    if count < limits["steps"] or share < limits["share"]:
        return Passed(
            f"{count:,} of {int(known.sum()):,} steps had no backward pass of their own"
            if count
            else "every step followed a backward pass"
        )
    empty = bool(
        (optimization.steps["grads_none"][idle] >= optimization.steps["parameters"][idle]).mean() > limits["empty"]
    )
    repeated, compared = (0, 0) if empty else _repeated(optimization, idle)
    if not empty and repeated < limits["same"] * compared:
        return Passed("steps without a backward had other gradients than the step before: they come from elsewhere")
    if not empty and not compared:
        return Skipped("steps without a backward had gradients, and whether these are new was not looked at")
    return [_finding(optimization, idle, share, empty, limits)]


def _repeated(optimization: Optimization, idle: Mask) -> tuple[int, int]:
    """Idle steps whose gradients have the norm of the step before, clipped or not, and how many could be compared."""
    norm, most = optimization.steps["grad_norm"], optimization.steps["clip_max_norm"]
    rows = np.flatnonzero(idle & np.isfinite(norm))
    rows = rows[(rows > 0) & np.isfinite(norm[rows - 1])]
    before, now = norm[rows - 1], norm[rows]
    same = np.isclose(now, before, rtol=1e-5) | np.isclose(now, np.fmin(before, most[rows - 1]), rtol=1e-3)
    return int(same.sum()), len(rows)


def _finding(optimization: Optimization, idle: Mask, share: float, empty: bool, limits: Limits) -> Finding:
    first, count = int(np.argmax(idle)), int(idle.sum())
    late, begin, name = float(idle[first:].mean()), timing.step_at(optimization, first), timing.name_of(optimization)
    remedy = repeated_steps.remedy(optimization, late)
    effect = (
        "There were no gradients at all: these steps changed nothing, but a schedule that steps with them runs ahead."
        if empty
        else "They apply the gradients of the previous step again, as if the learning rate were larger, and the "
        "optimizer state (momentum, squares) counts them twice."
    )
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain" if empty else "likely",
        title=f"{plural(count, 'optimizer step')}{name} ran without a "
        + ("new backward pass" if name else "backward pass since the step before"),
        summary=f"From step {begin:,} on, {share_of(late, 'steps')} had no new gradients.{remedy.why} {effect}",
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(idle)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("steps without a backward", share, "share", *limits.against("share")),
            Evidence("such steps", count, "steps", *limits.against("steps"), role="basis"),
            Evidence("gradients at such a step", "None" if empty else "those of the step before"),
        ],
        cost=timing.cost_of(optimization, idle),
        location=remedy.place or optimization.step_location,
        seen_at=optimization.step_location if remedy.place else None,
        diff=remedy.diff,
        charts=pictures.over_steps(
            optimization, "Backward passes per step", "backwards", {"backwards": "backwards"},
            [Mark(float(begin), "none")],
        ) + pictures.loss(optimization),
        false_alarm="Gradients that torch.autograd.grad computes at some steps, written into .grad by hand.",
    )  # fmt: skip


RULE = Rule(
    id="step-without-backward",
    family="gradients",
    severity="warning",
    title="Optimizer steps without a backward",
    about="A step on gradients that were already used, or on none, does not come from new data.",
    check=check,
    verify="Record the run again: every optimizer step follows a backward pass.",
    excluded=(
        "Several optimizers: only one stepped in this run, or gradients stayed what they were to the last digits.",
        "Steps that a loss scaler skipped are not counted.",
        "Gradients from torch.autograd.grad, written into .grad by hand: there were no gradients at these steps.",
    ),
    needs=(("steps.backwards",),),
    thresholds=(
        Threshold(
            "share", 0.05, "share", "an extra step per epoch or at the start, to please a scheduler, stays below"
        ),
        Threshold("same", 0.5, "share", "gradients that are used again have the same norm, to the last digits"),
        Threshold("beside", 0.9, "share", "the same beside other optimizers, and of other steps no more than the rest"),
        Threshold("steps", 10, "steps", "a handful are a resumed run or a change of phase"),
        Threshold(
            "empty", 0.5, "share", "of these steps: it decides which harm the finding names, not whether it fires"
        ),
    ),
    not_when="Closures (LBFGS), optimizers that share a backward, autograd.grad, a step or two at the start.",
)
