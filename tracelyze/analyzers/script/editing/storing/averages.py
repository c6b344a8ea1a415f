"""A running average, `self.mean = 0.9 * self.mean + 0.1 * loss`, kept without the graphs of the steps before.

Detached is what the whole statement makes: the graph that would grow is that of the value before. Nothing that the loss
needs is cut off: a backward through such an average would reach the graph of the step before, which is freed, and fail.
Not so where backwards retain their graphs: the loss may be computed from the new value, so the old one is detached.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

_NUMBERS: Final = re.compile(r"\b(?:item|tolist|float|int|len|numpy)\(")
_GUARD: Final = "if torch.is_tensor({name}):\n    {name} = {name}.detach()"
_PLACES: Final = (ast.Name, ast.Attribute, ast.Subscript)
_MIXED: Final = (ast.BinOp, ast.IfExp, ast.UnaryOp)


def detached(optimization: Optimization, place: Location) -> Diff | None:
    """The statement at a place with `.detach()` behind its value, where that is always a tensor."""
    process, backward = optimization.process, optimization.backward_location
    own, value = _average(process, place)
    if own is None or value is None:
        return None
    inside = backward is not None and backward.file_function == place.file_function
    if not inside and not _of_tensors(process, place, value):
        return None
    return own.changed(own.parsed.with_parts({value: f"{own.parsed.operand(value)}.detach()"}))


def guarded(process: Process, place: Location | None, retained: bool) -> str:
    """The statement, and behind it its value without the graph, for a method that may be given numbers, too; in front
    of it that of the step before, where backwards retain their graphs."""
    own, value = _average(process, place) if place else (None, None)
    if own is None or value is None or not isinstance(own.parsed.statement, ast.Assign):
        return ""
    name = own.parsed.text_of(own.parsed.statement.targets[0])
    if retained:
        return without_past(own, name)
    return f"{own.dedented(own.text)}\n{_GUARD.format(name=name)}"


def without_past(own: OwnStatement, name: str) -> str:
    """The statement, and in front of it what it made at the step before, without its graph; that may be a number at the
    first step."""
    return f"{_GUARD.format(name=name)}\n{own.dedented(own.text)}"


def of_itself(own: OwnStatement) -> str:
    """The only name or attribute that a statement assigns, where it takes its value before; else empty, as of a list
    that is made longer."""
    made = own.parsed.statement
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.targets[0], _PLACES):
        return ""
    if any(isinstance(one, ast.List | ast.Tuple | ast.Dict) for one in _parts(made.value)):
        return ""
    name = ast.unparse(made.targets[0])
    reads = any(isinstance(one, _PLACES) and ast.unparse(one) == name for one in ast.walk(made.value))
    return own.parsed.text_of(made.targets[0]) if reads else ""


def _average(process: Process, place: Location) -> tuple[OwnStatement | None, ast.expr | None]:
    """The statement at a place and its value, where it makes something by arithmetic of what it was before."""
    own = own_statement.at(process, place)
    made = own.parsed.statement if own is not None else None
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.targets[0], _PLACES):
        return None, None
    name = ast.unparse(made.targets[0])
    parts = list(_parts(made.value))
    before = [one for one in parts if ast.unparse(one) == name]
    several = any(isinstance(one, ast.List | ast.Tuple | ast.Dict) for one in parts)  # which have no detach
    plain_sum = len(parts) == 2 and all(isinstance(one, _PLACES) for one in parts)  # of which the new part is detached
    known = bool(before) and len(parts) > len(before) and not several and not plain_sum
    return (own, made.value) if known else (None, None)


def _parts(value: ast.expr) -> list[ast.expr]:
    """What an expression adds up, multiplies or chooses."""
    if not isinstance(value, _MIXED):
        return [value]
    return [part for one in ast.iter_child_nodes(value) if isinstance(one, ast.expr) for part in _parts(one)]


def _of_tensors(process: Process, place: Location, value: ast.expr) -> bool:
    """Whether something in the value was computed in the same function: what a method is given may be a number."""
    text = list(recorded_text.of_function(process, place).values())
    for part in _parts(value):
        called = ast.unparse(part) if isinstance(part, ast.Call) else ""
        if isinstance(part, ast.Name):
            made = re.compile(rf"\s*{re.escape(part.id)} = (?P<value>.+\(.*)")
            called = next((found["value"] for line in text if (found := made.fullmatch(line))), "")
        if called and not _NUMBERS.search(called):
            return True
    return False
