"""Weights of a policy's loss as they stood in its graph, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, script_lines
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def judge(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether the weights were all zero in many steps. None: no weights of a policy's loss were seen."""
    rows = [row for row in process.tables["loss_graphs"].records() if row["weights"]]
    if not rows:
        return None
    steps = np.array([row["step"] for row in rows])
    zero = np.array([row["weights_zero"] >= 1.0 for row in rows])
    steps, zero = np.unique(steps), np.array([zero[steps == one].all() for one in np.unique(steps)])
    if len(steps) < limits["steps"]:
        return Skipped(f"{plural(len(steps), 'step')} with weights of a policy seen: {limits['steps']:.0f} are needed")
    share = float(zero.mean())
    if share < limits["share"]:
        return Passed(f"{percent(share)} of the {len(steps)} steps looked at had weights that were all zero")
    early = zero[: max(3, len(zero) // 5)]
    if early.mean() < limits["share"]:
        return Passed("the weights of the policy's loss became zero on the way: a task that is solved does this")
    signed = any(row["weights_negative"] for row in rows)  # no mask has such
    optimization = process.longest if process.optimizations else None
    if not signed and optimization is not None and not _learns_nothing(optimization, limits["share"]):
        return Skipped(
            "weights of log-probabilities are all zero, but something else gives gradients: they may be a mask of "
            "samples, as with pseudo-labels"
        )
    begin = int(steps[int(np.argmax(zero))]) + 1
    seen = process.site(rows[0]["site"])
    seen = seen or (optimization.backward_location if optimization is not None else None)
    return Finding(
        rule=rule,
        severity="warning",
        confidence="certain" if signed else "likely",
        title=f"The policy's advantages are all zero in {share_of(share, 'steps')}: nothing to learn from",
        summary=(
            f"In {int(zero.sum())} of {len(zero)} steps that were looked at, every weight that the log-probabilities "
            "of the policy's loss are multiplied by is exactly zero, and so is the policy's gradient. Advantages are "
            "differences within a group, or to a baseline: they vanish where all rewards are equal."
        ),
        fix="Print the rewards of a few groups. If all are equal: look at the reward function; if prompts are all too "
        "easy or too hard, choose others, draw more completions per prompt, or reward a part of the task.",
        fix_code="print(rewards.view(-1, group).std(dim=1))   # zero: nothing to learn from that group",
        first_step=begin,
        last_step=int(steps[-1]) + 1,
        evidence=[
            Evidence("steps whose weights are all zero", share, "share", limits["share"], limits.source("share")),
            Evidence("steps looked at", len(zero), "steps", limits["steps"], limits.source("steps")),
        ],
        location=script_lines.only(process, "advantage") or seen,
        seen_at=seen,
        charts=pictures.loss(optimization, [Mark(float(begin), "no advantage")]) if optimization is not None else [],
        false_alarm="Groups that are drawn again until they differ.",
    )


def _learns_nothing(optimization: Optimization, share: float) -> bool:
    """Whether the gradients are zero in that share of the steps, or of those at which their norm was measured."""
    norm, zeros = optimization.steps["grad_norm"], optimization.steps["grads_zero"]
    known, looked = np.isfinite(norm), np.isfinite(zeros)
    measured = known.any() and (norm[known] == 0).mean() >= share
    return bool(measured or (looked.any() and (zeros[looked] > 0).mean() >= share))
