"""Where a rank may have decided alone to leave a loop in which the others went on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_LEAVES: Final = re.compile(r"(?P<indent>\s*)(?P<condition>(?:if|elif) .+:\s*)?(?:break|continue|return)\b")
_CONDITION: Final = re.compile(r"(?P<indent>\s*)(?:if|elif) .+:\s*(?:#.*)?$")
_PLANNED: Final = re.compile(r"(?:>=?|==|<=?)\s*[\w.]*(?:max|total|limit|steps|epochs|iters)\w*\b|\b(?:max|total)_\w+")


def between(process: Process, one: Location, other: Location) -> Location | None:
    """The only condition under which the recorded lines between two places leave a loop or a function."""
    if one.file != other.file:
        return None
    first, last = sorted((one.line, other.line))
    lines = recorded_text.of_file(process, one.file)
    leaves = [at for at in range(first + 1, last) if _LEAVES.match(lines.get(at, ""))]
    if len(leaves) != 1 or any(at not in lines for at in range(first + 1, last)):
        return None
    (at,) = leaves
    left = _LEAVES.match(lines[at])
    if left is None:
        return None
    head = at if left["condition"] else at - 1
    condition = _CONDITION.match(lines.get(head, ""))
    if not left["condition"] and (condition is None or len(condition["indent"]) >= len(left["indent"])):
        return None
    if _PLANNED.search(lines[head]):
        return None  # a number of steps that all ranks have
    return Location(one.file, head, one.function, lines[head].strip())


def said(place: Location | None) -> str:
    """A sentence about it, empty without one."""
    if place is None:
        return ""
    return f" Line {place.line} decides whether a rank continues there: `{place.source}`."
