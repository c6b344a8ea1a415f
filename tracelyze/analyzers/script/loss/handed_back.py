"""The line that computes a loss within a function of the script, which calls the model and hands the loss back."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine


def inside(process: Process, place: Location, loss: str) -> Location:
    """The line that computes the loss of this name, which is assigned at a place.

    Where that is nothing but `loss = compute(...)`, or `loss, scores = compute(...)`, and the model is called in that
    function alone, it is the line there that computes what is handed back; else the place itself.
    """
    line = parsed_line.parse(place.source)
    statement = line.statement if line is not None else None
    if line is None or not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return place
    called = [one for one in process.locations("training-call") if one.file == place.file]
    helper = parsed_line.name_of(statement.value.func)
    if not called or {one.function for one in called} != {helper} or helper == place.function:
        return place
    last = max(called, key=lambda one: one.line)
    lines = recorded_text.of_function(process, last)
    number = _returns(lines, last.line)
    final = parsed_line.parse(lines[number].strip()) if number is not None else None
    if number is None or final is None:
        return place
    name = _named(final, _position(line, loss))
    if name is None:
        return place
    made = _made(lines, number, name) if name else number
    return place if made is None else Location(place.file, made, helper, lines[made].strip())


def _returns(lines: dict[int, str], call: int) -> int | None:
    """The line that hands back, where it is the only one of the function and all lines before it were recorded."""
    found = [number for number, line in lines.items() if line.strip().startswith("return ")]
    if len(found) != 1 or found[0] < call or any(number not in lines for number in range(call, found[0])):
        return None
    return found[0]


def _position(line: ParsedLine, loss: str) -> int | None:
    """Which of several things that the function hands back is the loss; None of only one."""
    target = line.statement.targets[0] if isinstance(line.statement, ast.Assign) else None
    if not isinstance(target, ast.Tuple):
        return None
    return next((at for at, one in enumerate(target.elts) if line.text_of(one) == loss), len(target.elts))


def _named(line: ParsedLine, position: int | None) -> str | None:
    """The name of the loss that the line hands back; empty where it computes it there, None where that is not known."""
    value = line.statement.value if isinstance(line.statement, ast.Return) else None
    if position is not None:
        value = value.elts[position] if isinstance(value, ast.Tuple) and position < len(value.elts) else None
    if value is None or isinstance(value, ast.Tuple):
        return None
    return value.id if isinstance(value, ast.Name) else ""


def _made(lines: dict[int, str], below: int, name: str) -> int | None:
    """The only line above that gives the name its value."""
    found = []
    for number, text in lines.items():
        line = parsed_line.parse(text.strip())
        statement = line.statement if line is not None and number < below else None
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        found += [number] * any(isinstance(one, ast.Name) and one.id == name for one in targets)
    return found[0] if len(found) == 1 else None
