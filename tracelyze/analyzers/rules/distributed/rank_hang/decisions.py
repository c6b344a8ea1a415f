"""Where a rank may have decided alone to leave a loop in which the others went on, or to leave out a step of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.diagnosis import Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_LEAVES: Final = re.compile(r"(?P<indent>\s*)(?P<condition>(?:if|elif) .+:\s*)?(?:break|continue|return)\b")
_CONDITION: Final = re.compile(r"(?P<indent>\s*)(?:if|elif) .+:\s*(?:#.*)?$")
_PLANNED: Final = re.compile(r"(?:>=?|==|<=?)\s*[\w.]*(?:max|total|limit|steps|epochs|iters)\w*\b|\b(?:max|total)_\w+")
_COUNTED: Final = re.compile(r"%|(?:>=?|==|<=?)\s*[1-9]")  # by the number of the batch, which all ranks have


def between(process: Process, one: Location, other: Location) -> Location | None:
    """The only condition under which the recorded lines between two places leave a loop or a function."""
    if one.file != other.file:
        return None
    first, last = sorted((one.line, other.line))
    return _only_way_out(recorded_text.of_file(process, one.file), one, first, last)


def skipping(process: Process, one: Location, other: Location, steps: dict[str, int]) -> tuple[Location | None, str]:
    """The only condition under which the training loop, in which one place lies and the other one behind it, leaves out
    a batch, and a sentence about it. `steps`: how many the rank had made that stood behind the loop, by its name. Only
    where these are no whole number of passes, of one step for each batch."""
    inside, behind = sorted((one, other), key=lambda place: place.line)
    lines = recorded_text.of_file(process, inside.file) if one.file == other.file else {}
    heads = [place for place in process.locations("loop") if place.file == inside.file and place.line < inside.line]
    head = max(heads, key=lambda place: place.line, default=None)
    if head is None or any(place.line not in lines for place in (head, inside, behind)):
        return None, ""
    depth = recorded_text.indent_of(lines[head.line])
    if not recorded_text.indent_of(lines[inside.line]) > depth >= recorded_text.indent_of(lines[behind.line]):
        return None, ""
    read = {row["site"] for row in process.sites.records() if row["role"] == "loader" and row["line"] == head.line}
    lengths = {row["length"] for row in process.tables["loaders"].records() if row["site"] in read}
    batches = lengths.pop() if len(lengths) == 1 else None
    (who, made), *_ = steps.items()
    backwards = set(process.longest.steps["backwards"].tolist()) if process.optimizations else set()
    if not batches or made % batches == 0 or backwards != {1}:
        return None, ""
    found = _only_way_out(lines, inside, head.line, inside.line)
    if found is None or _COUNTED.search(found.source):
        return None, ""
    return found, (
        f" Line {found.line} leaves out steps: `{found.source}`. {who} had made {plural(made, 'step')}, no whole "
        f"number of passes over its {batches:,} batches."
    )


def _only_way_out(lines: dict[int, str], place: Location, first: int, last: int) -> Location | None:
    """The condition of the only break, continue or return between two lines, all of which have to be known."""
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
    return place.at(head, lines[head])


def said(place: Location | None) -> str:
    """A sentence about it, empty without one."""
    if place is None:
        return ""
    return f" Line {place.line} decides whether a rank continues there: `{place.source}`."
