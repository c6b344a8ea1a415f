"""Why gradients are not averaged: parts that a wrapper or the averaging leaves out, or a wrapper that nobody calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.ranks.averaging import left_out, outside, passed_by, unfrozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location


NotAveraged = outside.Outside | unfrozen.Unfrozen | left_out.LeftOut | passed_by.PassedBy


def of(process: Process, others: Sequence[Process], equal: float) -> NotAveraged | None:
    """What is known of it; None where nothing is."""
    late = unfrozen.of(process, others, equal)
    apart = late or outside.of(process, others, equal) or left_out.of(process, others, equal)
    return apart or passed_by.of(process)


def place(found: NotAveraged | None) -> Location | None:
    """The line to change, where it is known; else the one that makes what is not averaged."""
    called = found.called_at if isinstance(found, passed_by.PassedBy) else None
    return called or (found.made_at if found is not None else None)


def edit(found: NotAveraged | None) -> Diff | None:
    """The edit of that line, where it is known to be right."""
    return found.diff if isinstance(found, passed_by.PassedBy) else None
