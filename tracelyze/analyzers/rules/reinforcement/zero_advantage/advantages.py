"""Advantages that are all zero: what a policy's loss weighs its choices by tells it nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.policies import losses
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.analyzers.rules.reinforcement.zero_advantage import rounded_advantages, vanished_advantages
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats


def zero_advantages(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether the weights were all zero in many steps. None: no weights of a policy's loss were seen."""
    weights = _weights(process)
    if weights is None:
        return None
    if (judged := _too_few_zeros(weights, limits)) is not None:
        return judged
    optimization = _of_step(process, float(np.median(weights.steps)))
    learns = (
        not weights.signed
        and optimization is not None
        and not _learns_nothing(process, optimization, weights.steps[0], limits)
    )
    if learns and not _is_policy(process):
        return Skipped(
            "weights of log-probabilities are all zero, but something else gives gradients: they may be a mask of "
            "samples, as with pseudo-labels"
        )
    return _finding(process, optimization, weights, learns, rule, limits)


class Weights(NamedTuple):
    """What multiplies the log-probabilities in a policy's loss, at the steps that were looked at."""

    steps: Floats  # of the process, ascending, each once
    zero: Any  # bool per step: all weights were zero, or what rounding leaves of zero
    signed: bool  # some weight was negative: no mask has such
    rounded: str  # the largest weight that rounding made of zero; empty where all were exactly zero
    site: float  # the line of the backward pass

    @property
    def share(self) -> float:
        """The share of the steps looked at whose weights were all zero."""
        return float(self.zero.mean())


def _weights(process: Process) -> Weights | None:
    rows = [row for row in process.tables["loss_graphs"].records() if row["weights"]]
    if not rows:
        return None
    even = rounded_advantages.steps(process)
    exact = np.array([row["weights_zero"] >= 1.0 for row in rows])
    zero = exact | np.array([rounded_advantages.is_zero(row, even) for row in rows])
    of_rounding = [row["weights_largest"] for row, one in zip(rows, zero & ~exact, strict=True) if one]
    steps = np.array([row["step"] for row in rows])
    each = np.unique(steps)
    return Weights(
        steps=each,
        zero=np.array([zero[steps == one].all() for one in each]),
        signed=any(row["weights_negative"] for row in rows),
        rounded=number(max(of_rounding)) if of_rounding else "",
        site=rows[0]["site"],
    )


def _too_few_zeros(weights: Weights, limits: Limits) -> Passed | Skipped | None:
    """Why nothing is held against these weights, or None."""
    looked = len(weights.steps)
    if looked < limits["steps"]:
        return Skipped(f"{plural(looked, 'step')} with weights of a policy seen: {limits['steps']:.0f} are needed")
    if weights.share < limits["share"]:
        return Passed(f"{percent(weights.share)} of the {looked} steps looked at had weights that were all zero")
    early = weights.zero[: max(3, looked // 5)]
    if early.mean() < limits["share"]:
        return Passed("the weights of the policy's loss became zero on the way: a task that is solved does this")
    return None


def _finding(
    process: Process, optimization: Optimization | None, weights: Weights, learns: bool, rule: str, limits: Limits
) -> Finding:
    begin, end, training = _span(process, optimization, weights)
    seen = process.site(weights.site)
    seen = seen or (optimization.backward_location if optimization is not None else None)
    cause = vanished_advantages.cause(process, weights.steps, weights.zero, seen)
    return Finding(
        rule=rule,
        severity="warning",
        confidence="certain" if weights.signed and not weights.rounded else "likely",
        title=f"The policy's advantages are {'rounding errors' if weights.rounded else 'all zero'} in "
        + share_of(weights.share, "steps")
        + (f" ({training})" if training else ": nothing to learn from"),
        summary=f"In {int(weights.zero.sum())} of {len(weights.zero)} steps checked, every weight that multiplies the "
        f"log-probabilities in the policy loss is {_what_they_are(weights.rounded, learns)}{cause.why}",
        fix=cause.fix,
        fix_code=cause.code,
        first_step=begin,
        last_step=end,
        trainings=[training] if training else [],
        evidence=[
            Evidence("steps whose weights are all zero", weights.share, "share", *limits.against("share")),
            Evidence("steps looked at", len(weights.zero), "steps", *limits.against("steps"), role="basis"),
        ],
        location=cause.place or seen,
        seen_at=seen,
        charts=pictures.loss(optimization, [Mark(float(begin), "no advantage")]) if optimization is not None else [],
        false_alarm="Groups that are drawn again until they differ.",
        verify="Record the run again: in most steps some advantages differ from zero.",
    )


def _span(process: Process, optimization: Optimization | None, weights: Weights) -> tuple[int, int, str]:
    """The first and the last step of it, and the training whose steps these are where the program made several."""
    begin, end, training = int(weights.steps[int(np.argmax(weights.zero))]) + 1, int(weights.steps[-1]) + 1, ""
    if optimization is None:
        return begin, end, training
    if len(process.trainings) > 1:
        training = timing.training_with(process, optimization)
        before = _steps_of_others(process, training, int(weights.steps[0]))
        begin, end = 1 if weights.zero[0] else begin - before, end - before
    if weights.zero[-1]:  # looks get rarer: the last one need not be at the last step
        end = max(end, len(optimization.steps))
    return begin, end, training


def _what_they_are(rounded: str, learns: bool) -> str:
    """What the weights are where they say nothing. `rounded`: the largest of the weights, where rounding made some of
    them differ from zero; else empty."""
    if rounded:
        return (
            f"what rounding leaves of zero, or an epsilon makes of that ({rounded} at most). It says nothing of what "
            "was answered."
        )
    others = ": what gradients there are come of other terms, such as entropy" if learns else ""
    return f"exactly zero, and so is the policy's gradient{others}."


def _of_step(process: Process, step: float) -> Optimization | None:
    """The optimizer that made this step of the process; the one with the most steps where that is not known."""
    optimizers = process.steps["optimizer"]
    made = optimizers[min(int(step), len(optimizers) - 1)] if len(optimizers) else np.nan
    longest = process.longest if process.optimizations else None
    return next((one for one in process.optimizations if one.optimizer == made), longest)


def _steps_of_others(process: Process, training: str, step: int) -> int:
    """How many of the process's steps before this one are those of other trainings than the named one."""
    own = [one for part in process.trainings if part.training == training for one in part.optimizations]
    others = ~np.isin(process.steps["optimizer"][:step], [one.optimizer for one in own])
    return int(others.sum())


def _is_policy(process: Process) -> bool:
    """Whether the loss is that of a policy, and no mask of pseudo-labels: it holds ratios to an older policy, or an
    entropy that it rewards, or the script speaks of advantages."""
    seen = losses.looks(process)
    if seen is not None and (np.isfinite(seen.ratio_one).any() or (seen.punished < 0).any()):
        return True
    return bool(process.locations("advantage"))


def _learns_nothing(process: Process, optimization: Optimization, first: float, limits: Limits) -> bool:
    """Whether the gradients are zero in so many steps, or of those at which their norm was measured, since step
    `first` of the process."""
    share, later = limits["share"], np.arange(len(process.steps)) >= first
    of_it = process.steps["optimizer"] == optimization.optimizer
    own = later[of_it] if of_it.sum() == len(optimization.steps) else np.ones(len(optimization.steps), dtype=bool)
    norm, zeros = optimization.steps["grad_norm"][own], optimization.steps["grads_zero"][own]
    known, looked = np.isfinite(norm), np.isfinite(zeros)
    measured = known.any() and (norm[known] == 0).mean() >= share
    return bool(measured or (looked.any() and (zeros[looked] > 0).mean() >= share))
