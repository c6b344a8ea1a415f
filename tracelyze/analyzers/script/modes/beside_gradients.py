"""A loop over phases that turns gradients on and off, and leaves the model in one mode: one condition sets both."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.modes import another_model
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SWITCH: Final = re.compile(
    r"(?P<indent>\s*)with (?:torch\.)?(?:autograd\.)?set_grad_enabled\((?P<when>.+)\)\s*:\s*(?:#.*)?"
)


class Beside(NamedTuple):
    """The call that is missing, and the line that switches gradients, in front of which it belongs."""

    call: str
    place: Location
    diff: Diff

    @property
    def fix(self) -> str:
        """What to change."""
        return f"Line {self.place.line} turns gradients on in training only: set the mode by it, too, with {self.call}."


def of(process: Process, seen_at: Location | None) -> Beside | None:
    """`seen_at`: the line that calls the model, in training as well. None where a line calls eval(): parts of the model
    may be kept in eval mode, which train(True) would undo."""
    own = own_statement.at(process, seen_at)
    calls = {one.file_line for one in process.locations("training-call")}
    if own is None or seen_at is None or seen_at.file_line not in calls or process.locations("eval-mode"):
        return None
    lines = recorded_text.around(process, seen_at)
    depth = recorded_text.indent_of(lines.get(seen_at.line, ""))
    at = seen_at.line - 1
    while at in lines and (not lines[at].strip() or recorded_text.indent_of(lines[at]) >= depth):
        at -= 1
    head, model = _SWITCH.fullmatch(lines.get(at, "")), another_model.model_of(own.parsed)
    if head is None or not model or another_model.is_function(process, model) or not _is_condition(head["when"]):
        return None
    place, call = replace(seen_at, line=at, source=lines[at].strip()), f"{model}.train({head['when']})"
    return Beside(call, place, Diff(place.file, at, [], [f"{head['indent']}{call}"]))


def _is_condition(text: str) -> bool:
    """Whether it is an expression that may be true and false."""
    try:
        return not isinstance(ast.parse(text, mode="eval").body, ast.Constant)
    except SyntaxError:
        return False
