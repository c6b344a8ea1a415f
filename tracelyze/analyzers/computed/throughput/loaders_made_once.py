"""A loader that a function, or a line in the loop over epochs, makes anew for each epoch: how it is made once."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import loader_arguments, own_statement, parsed_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_EPOCHS: Final = re.compile(r"\s*for (?P<name>\w+) in ")
_KEPT: Final = "persistent_workers"


def example(process: Process, loader: Mapping[str, Any]) -> str:
    """What makes the loader before the epochs, with workers that stay. Where a function returns one, it is called
    there, and the loop goes through what it gave."""
    made_at = process.site(loader.get("made_at"))
    code = loader_arguments.example(process, loader, {_KEPT: True})
    place = assigned(process, loader)
    moved = own_statement.at(process, place)
    if made_at is not None and place is not None and moved is not None:
        inside = [] if loader.get(_KEPT) else [f"{code}  # in {made_at.function}()"]
        where = f"# above line {_around(process, place)[0].line}, and no more in line {place.line}:"
        return "\n".join([*inside, where, _first(process, moved.text)])
    own = own_statement.at(process, made_at)
    if own is None or made_at is None or not isinstance(own.parsed.statement, ast.Return):
        return f"# before the epochs:\n{_first(process, code)}"
    call, loop = _called(process.site(loader.get("site")), made_at.function.rpartition(".")[2])
    changed = [] if _KEPT in own.text else [f"{code}  # in {made_at.function}()"]
    if not call:
        return "\n".join([*changed, f"# call {made_at.function}() once, before the epochs, and keep what it returns"])
    return "\n".join([*changed, f"loader = {_first(process, call)}  # before the epochs", loop, "    ..."])


def assigned(process: Process, loader: Mapping[str, Any]) -> Location | None:
    """The line in the loop over epochs that gives a name to what the function returns that makes the loader."""
    made_at, place = process.site(loader.get("made_at")), process.site(loader.get("called_at"))
    own = own_statement.at(process, place)
    if own is None or made_at is None or place is None or not own.is_whole or not _around(process, place):
        return None
    statement = own.parsed.statement
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    return place if parsed_line.name_of(statement.value.func) == made_at.function.rpartition(".")[2] else None


def _around(process: Process, place: Location) -> list[Location]:
    """The loops over epochs in the function of a line that begin above it, the nearest first."""
    loops = [one for one in process.locations("epochs") if one.file_function == place.file_function]
    return sorted((one for one in loops if one.line < place.line), key=lambda one: -one.line)


def _first(process: Process, code: str) -> str:
    """The code as it is in the first epoch: the number of the epoch is not known before the loop."""
    loops = [found["name"] for one in process.locations("epochs") if (found := _EPOCHS.match(one.source))]
    for name in dict.fromkeys(loops):
        code = re.sub(rf"(?<![\w.\"']){re.escape(name)}\b(?!\s*=(?!=))(?![\"'])", "0", code)
    return code


def _called(iterated: Location | None, function: str) -> tuple[str, str]:
    """The call of the function in the head of the loop that goes through the loader, and that head without it."""
    line = parsed_line.parse(iterated.source.strip()) if iterated is not None else None
    if line is None or not isinstance(line.statement, ast.For):
        return "", ""
    within = ast.walk(line.statement.iter)
    calls = [one for one in within if isinstance(one, ast.Call) and parsed_line.name_of(one.func) == function]
    call = line.text_of(calls[0]) if calls else ""
    return (call, line.text.replace(call, "loader")) if call else ("", "")
