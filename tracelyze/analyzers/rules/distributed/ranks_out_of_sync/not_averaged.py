"""Why gradients are not averaged: parts that a wrapper or the averaging leaves out, a wrapper that nobody calls, or
one that is told not to average."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import (
    left_out,
    outside,
    passed_by,
    tensors,
    unfrozen,
    unsynced,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location


NotAveraged = outside.Outside | unfrozen.Unfrozen | left_out.LeftOut | passed_by.PassedBy | unsynced.Unsynced


def effect(process: Process) -> str:
    """What is known where nothing below is found, behind "they differ, by ... in the end: "."""
    if not tensors.are_wrapped(process):
        return "nothing averages the gradients. Each rank learns from its own data only, a model of its own."
    return (
        f"although a {tensors.DDP} is called, not everything in their gradients is averaged. Each rank learns in part "
        "from its own data only, a model of its own."
    )


def of(process: Process, others: Sequence[Process], equal: float) -> NotAveraged | None:
    """What is known of it; None where nothing is."""
    told = unfrozen.of(process, others, equal) or passed_by.beside_another(process, others, equal)
    apart = told or outside.of(process, others, equal) or left_out.of(process, others, equal)
    return apart or passed_by.of(process) or unsynced.of(process)


def place(found: NotAveraged | None) -> Location | None:
    """The line to change, where it is known; else the one that makes what is not averaged."""
    called = found.called_at if isinstance(found, passed_by.PassedBy) else None
    called = found.named_at if isinstance(found, unsynced.Unsynced) else called
    return called or (found.made_at if found is not None else None)


def edit(found: NotAveraged | None) -> Diff | None:
    """The edit of that line, where it is known to be right."""
    return found.diff if isinstance(found, passed_by.PassedBy | unsynced.Unsynced) else None


def seen(found: NotAveraged | None) -> Location | None:
    """The line that keeps gradients local, where another one gives its condition a name, and is to be changed."""
    return found.made_at if isinstance(found, unsynced.Unsynced) and found.named_at is not None else None
