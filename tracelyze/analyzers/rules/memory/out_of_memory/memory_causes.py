"""Why memory ran out: one allocation that is too large, a batch that is too long, other programs, or a course."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tracelyze.analyzers.rules.memory.out_of_memory import device_memory, long_batches, single_allocations
from tracelyze.diagnosis import Location
from tracelyze.formatting import size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.memory.out_of_memory.device_memory import Holders


class Cause(NamedTuple):
    """Why it did not fit, what to do, and the line that makes what is too large, where that is known."""

    why: str
    fix: str
    example: str
    line: Location | None = None


def of(process: Process, event: Mapping[str, Any], kind: str, held: Holders | None) -> Cause:
    """The cause of an exception (a row of the table events) for want of memory. `kind`: device or host."""
    text = str(event["text"] or "")
    step = None if event["step"] is None else int(event["step"])
    shared = held is not None and held.would_fit_alone
    single = None if shared else single_allocations.of(process, kind, text, event["source"] or "")
    fix, example = single_allocations.advice("shared" if shared else kind, single)
    course = device_memory.course(process.longest if process.optimizations else None)
    why = single.why if single else _why(step, held, course)
    if of_snapshot(process):
        why = "The steps done by then are not in a snapshot."
    long = long_batches.of(process, step, text) if single else None
    if long is not None:
        return Cause(f"{why} {long.why}", long.fix, long_batches.CODE, long.made_at)
    return Cause(why, fix, example)


def _why(step: int | None, held: Holders | None, course: str) -> str:
    """What is known of why it did not fit: from when on, and who held the device."""
    if held is not None and held.would_fit_alone:
        own = "this one" if held.own is None else f"this one, with {size(held.own)},"
        return (
            f"Other processes held {size(held.of_others)} of the device's {size(held.whole or 0)}, the largest of them "
            f"process {held.others[0][0]}; {own} would have had room for what it asked for."
        )
    if step:
        return course or "It fit until then: this needed more memory than what ran before, or less was left."
    if held is None or held.told:
        return "It never fit: what the program held before its first step left no room for this."
    return "The message does not say who held the memory: `nvidia-smi` shows whether other programs do."


def of_snapshot(process: Process) -> bool:
    """Whether the run was read from a snapshot of the allocator, which tells of no steps."""
    return (process.facts.get("source") or {}).get("kind") == "memory-snapshot"
