"""A line that takes one tensor of a batch by position, where the others are taken through a shuffled order."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.own_statement import OwnStatement
    from tracelyze.analyzers.recorded.run import Process

_NEAR: Final = 6  # lines
_LOOP: Final = re.compile(r"^\s*(?:async\s+)?(?:for|while)\b")
_DRAWN: Final = re.compile(r"^\s*(\w+)\s*=[^=].*\b(?:randperm|permutation)\s*\(|\bshuffle\s*\(\s*(\w+)\s*\)")


@dataclass(frozen=True)
class Apart:
    """`named`: what is taken by position; `through`: by what the others are."""

    place: Location
    named: str
    through: str
    diff: Diff | None

    def said(self) -> str:
        """What the script's text shows, and what of it is not known."""
        return (
            f" Line {self.place.line} takes {self.named} by position, and what else is in a batch through "
            f"{self.through}: unless it was put into that order before, it belongs to other samples."
        )


def of(process: Process) -> Apart | None:
    """The only such line of a function that hands out batches, or calls the model on them. That it is wrong is known
    only beside evidence that nothing is learned."""
    functions: dict[tuple[str, str], Location] = {}
    for one in [*process.locations("yields"), *process.locations("training-call")]:
        functions.setdefault(one.file_function, one)
    found = [apart for one in functions.values() for apart in _in_function(process, one)]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class _Taken:
    """A slice that a statement takes of something. `index`: by what it stands, where that is a shuffled order."""

    own: OwnStatement
    node: ast.Subscript
    index: str = ""

    @property
    def key(self) -> str:
        return ast.unparse(self.node.slice)


def _in_function(process: Process, inside: Location) -> list[Apart]:
    lines = recorded_text.of_function(process, inside)
    orders = {match[1] or match[2] for line in lines.values() if (match := _DRAWN.search(line))}
    loops = [number for number, line in lines.items() if _LOOP.match(line)]
    taken = [one for number in sorted(lines) for one in _taken(process, inside, number, lines[number], orders)]
    ordered = [one for one in taken if one.index]
    found = []
    for one in (one for one in taken if not one.index):
        beside = [other for other in ordered if other.key == one.key and _together(one, other, loops)]
        if len({other.index for other in beside}) == 1:
            found.append((one, beside[0].index))
    if len(found) != 1:
        return []
    (one, index), own = found[0], found[0][0].own
    named = ast.unparse(one.node.value)
    changed = own.changed(own.parsed.with_parts({one.node: f"{named}[{index}]"}))
    place = Location(inside.file, own.line, inside.function, own.text.split("\n")[0])
    return [Apart(place, f"{named}[{one.key}]", index, changed)]


def _taken(process: Process, inside: Location, number: int, line: str, orders: set[str]) -> list[_Taken]:
    own = own_statement.at(process, Location(inside.file, number, inside.function, line.strip()))
    if own is None or own.line != number:
        return []
    found = []
    for node in (one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Subscript)):
        if isinstance(node.slice, ast.Slice) and isinstance(node.value, ast.Name | ast.Attribute):
            text = own.parsed.text_of(node)
            found.append(_Taken(own, node, (_assigned(own, node) or text) if ast.unparse(node.value) in orders else ""))
    return found


def _together(one: _Taken, other: _Taken, loops: list[int]) -> bool:
    """Whether two statements stand in the same loop, as near as those that make a batch do."""
    first, last = sorted((one.own.line, other.own.line))
    return last - first <= _NEAR and not any(first < number <= last for number in loops)


def _assigned(own: OwnStatement, node: ast.Subscript) -> str:
    """The name that is given to this part of an order, where the statement does nothing else."""
    statement = own.parsed.statement
    if isinstance(statement, ast.Assign) and statement.value is node and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ""
