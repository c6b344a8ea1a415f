"""Losses of an evaluation over no elements, as of the boxes of a batch without any: their mean is NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.evidence import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_FIX: Final = (
    "Give this term a value where its mask is empty: add its elements up, and divide by their number, but by no less "
    "than 1. Do so in training as well, where such a batch is rarer."
)


class Empty(NamedTuple):
    """What is said of it: a sentence, what to change, an example, and the line, where there is only one."""

    told: str
    fix: str
    code: str
    line: Location | None


def seen(process: Process) -> Empty | None:
    """The first such loss; None if none was seen."""
    event = next(iter(process.events_of("empty-loss")), None)
    if event is None:
        return None
    name, line = event["name"] or "a loss", script_lines.only(process, "empty-loss")
    where = f" at line {line.line}" if line is not None else ""
    return Empty(
        f"{name}{where} was called with no elements in an evaluation, and the mean of nothing is NaN: a batch in which "
        "a mask chose nothing.",
        _FIX,
        f'term = F.{name}(output[mask], target[mask], reduction="sum") / mask.sum().clamp(min=1)',
        line,
    )
