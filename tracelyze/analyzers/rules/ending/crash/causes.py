"""What in this script brought an exception of a well-known family about, where a line of it is known to have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tracelyze.analyzers.computed.crashes import checkpointed
from tracelyze.analyzers.computed.crashes.families import BACKWARD_TWICE, CHANGED_IN_PLACE, IDS, NO_GRAPH, Family
from tracelyze.analyzers.rules.ending.crash import added_tokens, made_outside, stepped_between

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


class Cause(Protocol):
    """`place`: the line to change, where it is known; `said`: what it does; `fix` and `code`: what to do about it.

    `seen`: the run did it; else the text of the script alone suggests it, and the usual causes stay possible.
    """

    @property
    def place(self) -> Location | None: ...
    @property
    def said(self) -> str: ...
    @property
    def fix(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def seen(self) -> bool: ...


def meaning(family: Family, cause: Cause, usual: str) -> str:
    """What the exception means; without its usual causes where the one of this run is known."""
    return f"It means that {family.title}. {cause.said}" if cause.seen else f"{usual} {cause.said}"


def found(family: Family | None, process: Process, event: dict[str, Any], where: Location | None) -> Cause | None:
    """The line, and what to do about it."""
    name = family.name if family is not None else ""
    if name == BACKWARD_TWICE:
        return made_outside.found(process, event, where)
    if name == CHANGED_IN_PLACE:
        return stepped_between.found(process, event, where)
    if name == IDS:
        return added_tokens.found(process, where)
    return checkpointed.found(process) if name == NO_GRAPH else None
