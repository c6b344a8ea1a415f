"""Why gradients are not averaged: parts that a wrapper or the averaging leaves out, or a wrapper that nobody calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.ranks import outside_wrapper, partly_averaged
from tracelyze.analyzers.evidence.called import assigned
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


@dataclass(frozen=True)
class PassedBy:
    """A DistributedDataParallel that the script makes and never calls. `made_at`: the line that makes it."""

    made_at: Location

    def title(self, ranks: int) -> str:
        """What drifts apart, in a line."""
        return f"{self._name()} is never called: the weights of {plural(ranks, 'rank')} drift apart"

    def summary(self) -> str:
        """Why nothing is averaged, behind "they differ, by ... in the end: "."""
        return (
            f"line {self.made_at.line} makes a {outside_wrapper.DDP}, but no call went through it. It averages the "
            "gradients of its own calls alone; here the module inside it is called in its place, by `.module`, by the "
            "variable that was wrapped, or by another method than forward. What is saved is the model of one rank."
        )

    def fix(self) -> str:
        """What to call."""
        return (
            f"Call {self._name()}(inputs) itself in the training step. What another method computes goes into the "
            "model's forward."
        )

    def code(self) -> str:
        """The call, by the wrapper's own name."""
        return f"outputs = {self._name()}(inputs)  # not the module inside it"

    def _name(self) -> str:
        return assigned(self.made_at) or "the wrapper"


NotAveraged = outside_wrapper.Outside | partly_averaged.LeftOut | PassedBy


def of(process: Process, others: Sequence[Process], equal: float) -> NotAveraged | None:
    """What is known of it; None where nothing is."""
    left_out = outside_wrapper.of(process, others, equal) or partly_averaged.of(process, others, equal)
    return left_out or _passed_by(process)


def _passed_by(process: Process) -> PassedBy | None:
    """None where a wrapper was called, and where none was made, or several were."""
    made = [] if outside_wrapper.is_used(process) else process.locations("wrapper")
    return PassedBy(made[0]) if len(made) == 1 else None
