"""A loss that is the exponential of another one: its gradient is that of the other times the exponential itself."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.analyzers.script import edits, recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.loss import broken_operation
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine


@dataclass(frozen=True)
class Exponential:
    """The line that takes it, and that line without it."""

    place: Location
    code: str

    @property
    def said(self) -> str:
        """What comes of it."""
        return (
            f" Line {self.place.line} makes the loss an exponential: its gradient is that of the exponent times the "
            "loss itself, so that one batch with a large error moves the weights beyond all measure."
        )

    @property
    def fix(self) -> str:
        """What to do about it."""
        return f"Train on the exponent of line {self.place.line} itself, or bound it (clamp) before exp."


def of(optimization: Optimization) -> Exponential | None:
    """The only line, in the function that calls backward, that gives the loss a value, where that is an exponential."""
    backward = optimization.backward_location
    match = backward and edits.BACKWARD.match(backward.source)
    if backward is None or not match:
        return None
    lines = recorded_text.of_function(optimization.process, backward)
    assigns = re.compile(rf"\s*{re.escape(match['loss'])}\s*[-+*/]?=(?!=)")
    found = [at for at, text in lines.items() if at < backward.line and assigns.match(text)]
    if len(found) != 1:
        return None
    place = backward.at(found[0], lines[found[0]])
    own = own_statement.at(optimization.process, place)
    statement = own.parsed.statement if own is not None else None
    if own is None or not isinstance(statement, ast.Assign):
        return None
    exponent = _exponent(own.parsed, statement.value)
    return Exponential(place, own.dedented(own.parsed.with_parts({statement.value: exponent}))) if exponent else None


def broken(optimization: Optimization, place: Location | None, step: int) -> Exponential | None:
    """The same, where an exponential at this line was seen to leave float32 in this step of the process."""
    found, seen = of(optimization), broken_operation.seen(optimization.process, step).operations
    here = found is not None and place is not None and found.place.file_line == place.file_line
    return found if here and len(seen) == 1 and seen[0].startswith("exp ") else None


def _exponent(parsed: ParsedLine, value: ast.expr) -> str:
    """What stands in the exponent; empty where it is no exponential, or of something with a minus in front."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "exp":
        return ""
    of_function = isinstance(value.func.value, ast.Name) and value.func.value.id == "torch"
    given = value.args[0] if of_function and len(value.args) == 1 else value.func.value
    if of_function is not bool(value.args) or isinstance(given, ast.UnaryOp) or value.keywords:
        return ""
    return parsed.text_of(given)
