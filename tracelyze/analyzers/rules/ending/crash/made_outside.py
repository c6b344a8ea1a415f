"""A module that is called once, outside of the loop, with autograd on: the only line that may have made the graph which
a second backward ran into."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import carried_states, line_edits
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_FREED: Final = re.compile(r"\.detach\(|\.data\b|\.item\(|\.numpy\(")
_MOST_STEPS: Final = 1  # done before: the second backward that runs into a graph finds it freed


@dataclass(frozen=True)
class MadeOutside:
    """The line, and what it calls."""

    place: Location
    called: str
    code: str
    seen = True

    @property
    def said(self) -> str:
        """What the line does, and what comes of it."""
        return (
            f"Here line {self.place.line} calls {self.called} outside of the loop, with autograd on: the first "
            "backward frees the graph of its result, and that of the next step runs into it."
        )

    @property
    def fix(self) -> str:
        """What to do about it."""
        return (
            f"Put line {self.place.line} under torch.no_grad(), if {self.called} is not to be trained; if it is, call "
            "it in each step. retain_graph=True silences the error but keeps all graphs and makes memory grow."
        )


def found(process: Process, event: Mapping[str, Any], where: Location | None) -> MadeOutside | None:
    """The only line outside of the loop that assigns what a module computes which nothing in the loop calls."""
    if where is None or (event["step"] or 0) > _MOST_STEPS or carried_states.carried(process):
        return None
    calls = {one.file_line: (one, _called(process, one)) for one in process.locations("training-call")}
    outside = [one for one, _ in calls.values() if _is_outside(process, one, where, str(event["text"] or ""))]
    if len(outside) != 1:
        return None
    (place,) = outside
    called = calls.pop(place.file_line)[1]
    if not called or any(called == other for _, other in calls.values()):
        return None
    diff = line_edits.under(process, place, "with torch.no_grad():")
    code = "\n".join(line.removeprefix(_indent(diff.added[0])) for line in diff.added) if diff else ""
    return MadeOutside(place, called, code or "with torch.no_grad():\n    ...  # the named line")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _called(process: Process, line: Location) -> str:
    """The only module that an assignment may call, by its name; empty where a graph is taken off its result."""
    own = own_statement.at(process, line)
    if own is None or not isinstance(own.parsed.statement, ast.Assign) or _FREED.search(own.text):
        return ""
    names = {row["called_as"] for row in process.models.records()} - {None, ""}
    called = {ast.unparse(node.func) for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)} & names
    return str(called.pop()) if len(called) == 1 else ""


def _is_outside(process: Process, line: Location, where: Location, traceback: str) -> bool:
    """Whether a line ran before the loop whose backward failed: above its head, or in a function that has called the
    loop's since."""
    heads = process.locations("loop")
    inside = [one.line for one in heads if one.file_function == where.file_function and one.line < where.line]
    if line.file_function == where.file_function:
        return bool(inside) and line.line < min(inside)
    frames = [found for found in _FRAME.finditer(traceback) if found["function"] == line.function]
    frames = [found for found in frames if found["file"].endswith(line.file)]
    around = [one.line for one in heads if one.file_function == line.file_function]
    if not frames or len(frames) > 1 or line.line >= int(frames[0]["line"]):
        return False
    return bool(inside) or (bool(around) and line.line < min(around))
