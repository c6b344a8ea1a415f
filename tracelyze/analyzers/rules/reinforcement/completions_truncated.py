"""completions-truncated: nearly all completions end at the length limit, none by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """The share of cut-off completions in the later half, where the reward does not rise all the same."""
    seen = metrics.metric(process, "cut_off")
    if seen is None:
        return Skipped("no share of completions that were cut off was logged", "not-applicable")
    steps = _steps(process, seen)
    if len(seen) < limits["values"] or steps < limits["steps"]:
        return Skipped(
            f"{plural(len(seen), 'logged share')} of cut-off completions over {plural(steps, 'step')}: "
            f"{limits['values']:.0f} over {limits['steps']:.0f} are needed"
        )
    later = float(np.median(seen.values[len(seen) // 2 :]))
    if later < limits["share"]:
        return Passed(f"{percent(later)} of the completions are cut off at the length limit")
    reward = metrics.metric(process, "reward")
    if reward is not None and len(reward) < limits["steps"] and reward.ends()[1] > reward.ends()[0]:
        return Skipped("nearly all completions have the full length, and the few rewards that were logged may rise")
    if metrics.rises(reward):
        return Passed("nearly all completions have the full length, and the reward rises: a task of fixed length")
    over = seen.values >= limits["share"]
    begin = int(seen.steps[int(np.argmax(over))])
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="likely",
            title=f"{percent(later)} of the completions are cut off at the length limit",
            summary=(
                "Nearly no completion ends by itself, so answers that come at the end are never seen by the reward, "
                "which does not rise. Either the limit is too short for the task, or the model never learned to stop: "
                "an end symbol that is masked, or a template that the model does not know."
            ),
            fix="Raise the length limit, check the chat template and the end symbol, or leave cut-off completions out "
            "of the loss.",
            fix_code="GRPOConfig(max_completion_length=4096, mask_truncated_completions=True)",
            first_step=begin,
            last_step=int(seen.steps[-1]),
            evidence=[
                Evidence("cut off, in the later half", later, "share", limits["share"], limits.source("share")),
                Evidence("column", seen.name),
            ],
            charts=metrics.picture("Completions", [seen], [Mark(float(begin), "cut off")]),
            false_alarm="A task whose answers all have the full length.",
        )
    ]


def _steps(process: Process, seen: metrics.Metric) -> int:
    """How many steps were logged about: a trainer logs the mean of several, and none before its first log."""
    if len(seen) < 2:
        return len(seen)
    apart = float(np.median(np.diff(seen.steps)))
    longest = len(process.longest.steps) if process.optimizations else int(seen.steps[-1])
    return int(min(len(seen) * max(apart, 1.0), longest))


RULE = Rule(
    id="completions-truncated",
    family="reinforcement",
    severity="warning",
    title="Completions are cut off",
    about="A completion that is cut off has no answer: its reward says nothing about the policy.",
    check=check,
    verify="Record the run again: most completions end by themselves.",
    absent="The run logged no completions.",
    needs=(("scalars.value",),),
    thresholds=(
        Threshold("share", 0.9, "share", "nearly all; long answers that are cut off now and then stay below a half"),
        Threshold("steps", 10, "steps", "fewer are the start of a run"),
        Threshold("values", 5, "values", "derived: the median of the later three is not moved by one"),
    ),
    not_when="Tasks of fixed length, where the reward rises all the same.",
    references=("https://arxiv.org/abs/2503.14476",),
)
