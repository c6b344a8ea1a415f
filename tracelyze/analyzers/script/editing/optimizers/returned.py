"""The statement by which configure_optimizers hands its scheduler to a framework, with how often that is to step it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff

CONFIGURE: Final = "configure_optimizers"
_RETURN: Final = re.compile(r"\s*return\b")
_OF_A_SCHEDULER: Final = ("interval", "frequency", "strict", "name")  # which Lightning passes over beside the optimizer


class Returned(NamedTuple):
    """The line, and the statement with another interval; an empty text and None where it is not known."""

    line: Location
    code: str
    diff: Diff | None


def with_interval(process: Process, made: Location | None, interval: str) -> Returned | None:
    """Of the method in which the scheduler is made, if that is configure_optimizers and returns once. `interval`:
    "step" or "epoch"; empty where the statement stays as it is."""
    if made is None or made.function != CONFIGURE:
        return None
    noted = [one for one in process.locations("optimizers-returned") if one.file_function == made.file_function]
    known = [one for one in noted if one.line > made.line] or _below(process, made)
    if len({one.file_line for one in known}) != 1:
        return None
    own = own_statement.at(process, known[0])
    text = _written(own, interval) if own is not None and interval else ""
    if own is None or not text:
        return Returned(known[0], "", None)
    return Returned(known[0], own.dedented(text), own.changed(text))


def _below(process: Process, made: Location) -> list[Location]:
    """The recorded lines of the method that return something, below the one that makes the scheduler."""
    lines = recorded_text.of_function(process, made)
    found = [at for at, text in lines.items() if at > made.line and _RETURN.match(text)]
    return [made.at(at, lines[at]) for at in found]


def _written(own: OwnStatement, interval: str) -> str:
    """The statement with this interval; empty unless it returns one optimizer and one scheduler."""
    value = own.parsed.statement.value if isinstance(own.parsed.statement, ast.Return) else None
    if isinstance(value, ast.Tuple | ast.List):
        parts = [one.elts for one in value.elts if isinstance(one, ast.List | ast.Tuple)]
        if len(value.elts) != len(parts) or [len(one) for one in parts] != [1, 1]:
            return ""
        (optimizer,), (scheduler,) = parts
        held = [f'"optimizer": {own.parsed.text_of(optimizer)}']
    elif isinstance(value, ast.Dict):
        pairs = _by_key(value)
        if len(pairs) != len(value.keys) or not {"optimizer", "lr_scheduler"} <= pairs.keys():
            return ""
        scheduler = pairs.pop("lr_scheduler")
        held = [f'"{key}": {own.parsed.text_of(one)}' for key, one in pairs.items() if key not in _OF_A_SCHEDULER]
    else:
        return ""
    stepped = _stepped(own, scheduler, interval)
    return f'return {{{", ".join(held)}, "lr_scheduler": {stepped}}}' if stepped else ""


def _stepped(own: OwnStatement, scheduler: ast.expr, interval: str) -> str:
    """A scheduler with this interval, also one that has another so far."""
    if isinstance(scheduler, ast.List | ast.Tuple):
        return ""
    if not isinstance(scheduler, ast.Dict):
        return f'{{"scheduler": {own.parsed.text_of(scheduler)}, "interval": "{interval}"}}'
    pairs = _by_key(scheduler)
    if len(pairs) != len(scheduler.keys) or "scheduler" not in pairs:
        return ""
    held = [f'"{key}": {own.parsed.text_of(one)}' for key, one in pairs.items() if key != "interval"]
    return f'{{{", ".join(held)}, "interval": "{interval}"}}'


def _by_key(dictionary: ast.Dict) -> dict[str, ast.expr]:
    """The values of a dictionary by those of its keys that are written out."""
    pairs = zip(dictionary.keys, dictionary.values, strict=True)
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
