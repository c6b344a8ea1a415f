"""Completions that ended by themselves at first, and are cut off later: the limit had room, and the end was known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.loss import assignment
from tracelyze.analyzers.script.settings import framework_arguments
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.signatures.metrics import Metric
    from tracelyze.diagnosis import Location

FIX: Final = (
    "Compare completions from before and after that step. Where the reward falls with it, the policy has left what it "
    "knew: lower the learning rate, or raise the weight of the KL term. Where longer answers earn more, raise the "
    "length limit, or take something off for length."
)


def lost(seen: Metric, limits: Limits) -> bool:
    """Whether most of the first completions had an end within the limit."""
    return seen.start < limits["ended"]


def said(seen: Metric, begin: int, rises: bool) -> str:
    """What is known of the course."""
    first = percent(seen.start) if seen.start else "none"
    return (
        f"At first {first} of the completions were cut off: the policy ended its answers, and the limit had room for "
        f"them. By step {begin:,} almost none ended by itself. The reward {'rises' if rises else 'does not rise'} over "
        "the run."
    )


def place(process: Process) -> Location | None:
    """The line to change: what the policy's loss is made of, or the learning rate of a trainer; not the limit."""
    line, backward = assignment.of_last(process)
    return framework_arguments.in_place_of(line or backward, process, ("learning_rate",))
