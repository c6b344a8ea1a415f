"""A loader that a function, or a line in the loop over epochs, makes anew for each epoch: how it is made once."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import loader_arguments, own_statement, parsed_line

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
    own = own_statement.at(process, made_at)
    if own is None or made_at is None or not isinstance(own.parsed.statement, ast.Return):
        return f"# before the epochs:\n{_first(process, code)}"
    call, loop = _called(process.site(loader.get("site")), made_at.function.rpartition(".")[2])
    changed = [] if _KEPT in own.text else [f"{code}  # in {made_at.function}()"]
    if not call:
        return "\n".join([*changed, f"# call {made_at.function}() once, before the epochs, and keep what it returns"])
    return "\n".join([*changed, f"loader = {_first(process, call)}  # before the epochs", loop, "    ..."])


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
