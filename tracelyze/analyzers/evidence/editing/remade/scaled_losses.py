"""The backward of the only loss that is not scaled, beside others that are: its line, and its text with the scaler."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.evidence.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.parsed_line import ParsedLine
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location


class Plain(NamedTuple):
    """The line, its text with the scaler, and the edit, where that is known to be right."""

    place: Location
    code: str
    diff: Diff | None


def plain(optimization: Optimization) -> Plain | None:
    """The only line whose backward is called on a plain loss, where all others that run one name the same scaler."""
    process = optimization.process
    scalers: set[str] = set()
    found: list[Plain | None] = []
    for place in process.locations("backward"):
        own = own_statement.at(process, place)
        call = _called(own.parsed) if own is not None else None
        if own is None or call is None:
            return None
        loss = call.func.value if isinstance(call.func, ast.Attribute) else call
        if isinstance(loss, ast.Call) and parsed_line.name_of(loss.func) == "scale":
            scalers.add(own.parsed.text_of(loss.func))
        else:
            found.append(Plain(place, own.parsed.text_of(loss), None))
    one = found[0] if len(found) == 1 else None
    own = own_statement.at(process, one.place) if one is not None else None
    if one is None or own is None or len(scalers) != 1:
        return None
    call = _called(own.parsed)
    if call is None:
        return None
    text = own.parsed.with_parts({call.func: f"{scalers.pop()}({one.code}).backward"})
    return Plain(one.place, own.dedented(text), own.changed(text))


def _called(line: ParsedLine) -> ast.Call | None:
    """The only call of a method backward in a statement."""
    calls = line.calls("backward")
    return calls[0] if len(calls) == 1 and isinstance(calls[0].func, ast.Attribute) else None
