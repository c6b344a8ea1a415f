"""Hooks of the model's modules that are registered again and again, and never removed."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tracelyze.analyzers.recorded.run import Process

FIX: Final = (
    "Register hooks once, before training begins, or keep the handle that registering one returns, and call remove() "
    "on it before the next one is registered."
)
FIX_CODE: Final = """handle = module.register_forward_hook(hook)  # your own call, with its handle kept
...  # what the hook is for
handle.remove()"""
ABOVE: Final = (
    "Call `{function}` once, above the loop, and no longer on line {line}; or keep the handles that registering hooks "
    "returns, and call remove() on each before the next ones are registered."
)
_LOOPS: Final = ("backward", "training-call", "step", "loop", "loader", "epochs")
_FEWEST: Final = 4  # derived: looks with more hooks each time; a model that is wrapped once shows two
_HELD: Final = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*=\s*(?:lambda\b|(?:\w+\.)?partial\()")
_LOOP: Final = re.compile(r"\s*for\b.*:\s*(?:#.*)?$")
_TIMES: Final = 2.0  # derived: the hooks that were there at first are fewer than what came


class Added(NamedTuple):
    """Hooks at the first look that saw any, and at the last; the line that registers them, where there is only one, and
    the only one in a function of the training that calls the function it stands in."""

    first: int
    last: int
    step: int
    registered: Location | None
    called: Location | None
    kept: str

    def said(self) -> str:
        begun = f"after step {self.step:,}" if self.step else "before the first step"
        where = f" Line {self.registered.line} registers them" if self.registered is not None else ""
        where += f", and line {self.called.line} calls `{self.function}`" if self.called is not None else ""
        return (
            f"What grew is the number of hooks on modules: {self.first:,} {begun}, "
            f"{self.last:,} at the end. Each of them runs at every call, until it is removed.{where and f'{where}.'}"
        )

    @property
    def function(self) -> str:
        return self.registered.function if self.registered is not None else ""

    @property
    def place(self) -> Location | None:
        return self.called or self.registered

    @property
    def fix(self) -> str:
        return ABOVE.format(function=self.function, line=self.called.line) if self.called is not None else FIX

    @property
    def code(self) -> str:
        """The call that the loop is to do without, else the one whose handle is to be kept."""
        if self.called is not None:
            return f"{self.called.source}  # once, above the loop, and no longer on line {self.called.line}"
        removed = (
            "for handle in handles:\n    handle.remove()" if self.kept.startswith("handles") else "handle.remove()"
        )
        return f"{self.kept}\n...  # what the hook is for\n{removed}" if self.kept else FIX_CODE


def of(process: Process) -> Added | None:
    """None where their number did not grow again and again."""
    rows = process.events_of("hooks")
    counts = [int(row["value"]) for row in rows]
    if len(counts) < _FEWEST or counts[-1] < _TIMES * counts[0]:
        return None
    line = script_lines.only(process, "module-hook") or _registering(process, rows[-1])
    called = _called(process, line) if line is not None else None
    return Added(counts[0], counts[-1], int(rows[0]["step"]), line, called, _with_its_handle(process, line))


def _registering(process: Process, commonest: Mapping[str, Any]) -> Location | None:
    """The only line that registers the hook which is there most often: by its name, by that of the variable that holds
    it, or in the line that defines it."""
    lines = [one for one in process.locations("module-hook") if one.file == commonest["file"]]
    held = _HELD.match(commonest["source"] or "")
    name = held["name"] if held is not None else str(commonest["name"])
    named = re.compile(rf"\(.*\b{re.escape(name)}\b") if name.isidentifier() else None
    found = [one for one in lines if one.line == commonest["line"] or (named and named.search(one.source))]
    return found[0] if len(found) == 1 else None


def _called(process: Process, registered: Location) -> Location | None:
    """The only recorded line in functions of the training that calls the one in which hooks are registered."""
    name = registered.function
    training = {one.file_function: one for role in _LOOPS for one in process.locations(role)}
    if not name.isidentifier() or name.startswith("__") or name == "forward" or registered.file_function in training:
        return None
    calls = re.compile(rf"(?<!def )\b{re.escape(name)}\s*\(")
    found: dict[tuple[str, int], Location] = {}
    for place in training.values():
        lines = recorded_text.of_function(process, place)
        here = [place.at(at, text) for at, text in lines.items() if calls.search(text)]
        found |= {one.file_line: one for one in here if not one.source.startswith("#")}
    return next(iter(found.values())) if len(found) == 1 else None


def _with_its_handle(process: Process, registered: Location | None) -> str:
    """The script's own statement that registers a hook, where it drops the handle, with a name for that; where it keeps
    it, as one of a list."""
    own = own_statement.at(process, registered)
    statement = own.parsed.statement if own is not None else None
    if own is None or not isinstance(statement, ast.Expr | ast.Assign) or not isinstance(statement.value, ast.Call):
        return ""
    called = statement.value.func
    registers = isinstance(called, ast.Attribute) and called.attr.startswith("register_")
    above = recorded_text.around(process, registered).get(own.line - 1, "") if registered is not None else ""
    if registers and _LOOP.match(above) and recorded_text.indent_of(above) < len(own.indent):
        call = own.dedented(own.parsed.text_of(statement.value))
        return f"handles = []\n{above.strip()}\n    handles.append({call})"
    if registers and isinstance(statement, ast.Assign):
        return (
            f"handles.append({own.dedented(own.parsed.text_of(statement.value))})  # each of them, not the last alone"
        )
    return f"handle = {own.dedented(own.text)}" if registers else ""
