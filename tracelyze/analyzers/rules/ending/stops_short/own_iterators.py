"""The one iterator over a loader that a loop reads in all epochs: the line that makes it, and epochs with one each."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_BY_HAND: Final = re.compile(r"\biter\s*\(")
_ASKED: Final = re.compile(r"\bnext\s*\(")
_MOVED: Final = "...  # the line that makes it, moved from above"


class _Loop(NamedTuple):
    """A `for` over a name, at a place."""

    place: Location
    target: str
    name: str


def made_anew(process: Process, asked: Location | None) -> str:
    """A loop over the epochs that makes the iterator of this `for` in each: by the line that makes it, if that was
    recorded in the same function."""
    loop = _loop(asked)
    if loop is None:
        return _epochs("batches", _MOVED, "for batch in batches:")
    line = _assigned(process, loop)
    made = line.source.partition(" = ")[2] if line is not None else ""
    whole = made if made and parsed_line.parse(f"{loop.name} = {made}") else None
    return _epochs(loop.name, f"{whole}  # moved from above" if whole else _MOVED, f"for {loop.target} in {loop.name}:")


def made_at(process: Process, asked: Location | None) -> Location | None:
    """The line that makes the iterator of this `for`: the only one of its function that assigns the name, else the one
    that asks the loader of the training for an iterator by hand."""
    loop = _loop(asked)
    return (_assigned(process, loop) or _asked_by_hand(process)) if loop else None


def loader_in_its_place(process: Process, asked: Location | None) -> Diff | None:
    """The edit that hands the loader itself to this `for`, `batches = loader` for `batches = iter(loader)`: the `for`
    then asks for a new iterator in each epoch. None where `next()` may ask the iterator, too."""
    made = made_at(process, asked)
    own = own_statement.at(process, made)
    statement = own.parsed.statement if own is not None else None
    if asked is None or made is None or own is None or not isinstance(statement, ast.Assign):
        return None
    call = statement.value
    if not isinstance(call, ast.Call) or own.parsed.text_of(call.func) != "iter" or len(call.args) != 1:
        return None
    lines = [*recorded_text.around(process, made).values(), *recorded_text.around(process, asked).values()]
    if any(_ASKED.search(line) for line in lines):
        return None
    return own.changed(own.parsed.with_parts({call: own.parsed.text_of(call.args[0])}))


def _asked_by_hand(process: Process) -> Location | None:
    place = process.site(process.longest.loader.get("site")) if process.optimizations else None
    return place if place is not None and _BY_HAND.search(place.source) else None


def _loop(asked: Location | None) -> _Loop | None:
    head = parsed_line.of(asked)
    loop = head.statement if head is not None else None
    if asked is None or head is None or not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Name):
        return None
    return _Loop(asked, head.text_of(loop.target), loop.iter.id)


def _assigned(process: Process, loop: _Loop) -> Location | None:
    """The only line of the loop's function that assigns its iterator."""
    lines = recorded_text.around(process, loop.place).items()
    made = [(at, line) for at, line in lines if re.fullmatch(rf"\s*{loop.name} = .+", line)]
    return loop.place.at(*made[0]) if len(made) == 1 else None


def _epochs(name: str, made_by: str, head: str) -> str:
    return f"for epoch in range(epochs):\n    {name} = {made_by}\n    {head}\n        ..."
