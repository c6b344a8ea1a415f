"""Completions that nearly all end at the length limit: what that means by the course of the reward, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.script.settings import framework_arguments
from tracelyze.analyzers.signatures import metrics

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.signatures.metrics import Metric

OF_TRL = "GRPOConfig(max_completion_length=4096, mask_truncated_completions=True)  # above the present limit"
TWICE = "max_completion_length={twice},  # {now} today: the longest answer has to fit, with its end symbol"
STAYS = (
    "Almost no completion ends by itself, so the reward never sees answers that come at the end, and it does not rise. "
    "The limit is too short for the task, or the model never learned to stop: a masked end symbol, or a template that "
    "it does not know."
)
RISES = (
    "Almost no completion ends by itself. The reward rises anyway: either all answers in this task have the full "
    "length, or what is rewarded comes before the end, and the model does not learn to stop there."
)
EARNED = (
    "Nearly no completion ends by itself. The reward rises, and yet {names} gave 0 in most later logs: what that "
    "rewards comes after the limit, or the model hardly ever reaches it."
)
FIX = (
    "Raise the length limit, check the chat template and the end symbol, or leave cut-off completions out of the loss."
)


def said(rises: bool, never: list[str]) -> str:
    """What it means, by the course of the reward; `never`: the rewards that gave nothing in most later logs."""
    if never:
        return EARNED.format(names=" and ".join(never))
    return RISES if rises else STAYS


def example(process: Process, seen: Metric) -> str:
    """An example with a longer limit: twice that of the script, where it is known; empty outside of TRL."""
    now = framework_arguments.number_of(process, "max_completion_length")
    if now:
        return TWICE.format(now=now, twice=2 * now)
    return OF_TRL if metrics.is_of_trl(process, seen) else ""
