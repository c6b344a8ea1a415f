"""A line that was to empty what grows, and gave a new value to the variable of a loop over it instead."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_EMPTY: Final = ("[]", "{}", "list()", "dict()", "set()")


class LeftFull(NamedTuple):
    """The line, what is said of it, and how it empties what it was to empty."""

    place: Location
    said: str
    fix: str
    code: str
    diff: Diff | None


def of(process: Process, grows: Location | None) -> LeftFull | None:
    """The only such line in a loop over what the line `grows` puts its entries into; None where none is known."""
    own = own_statement.at(process, grows)
    held = _held(own.parsed.statement) if own is not None else None
    if grows is None or held is None:
        return None
    found = [one for place in process.locations("left-alone") if (one := _emptied(process, place, held, grows))]
    return found[0] if len(found) == 1 else None


def _held(statement: ast.stmt) -> str | None:
    """The last name of what holds the lists or dictionaries, `records` of `self.records[name].append(x)`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    target = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    inner = target.value if isinstance(target, ast.Subscript) else None
    return inner.attr if isinstance(inner, ast.Attribute) else inner.id if isinstance(inner, ast.Name) else None


def _emptied(process: Process, place: Location, held: str, grows: Location) -> LeftFull | None:
    own = own_statement.at(process, place)
    statement = own.parsed.statement if own is not None else None
    if own is None or not isinstance(statement, ast.Assign) or place.file != grows.file:
        return None
    name, value = ast.unparse(statement.targets[0]), own.parsed.text_of(statement.value)
    shortened = re.fullmatch(rf"{re.escape(name)}\[-?\w*:-?\w*\]", value.replace(" ", ""))
    lines = recorded_text.of_function(process, place)
    above = [number for number in lines if number < own.line and lines[number].strip()]
    outer = [number for number in above if recorded_text.indent_of(lines[number]) < len(own.indent)]
    head = lines[max(outer)].strip() if outer else ""
    over = rf"for\b.*\b{re.escape(name)}\b.*\bin\b.*(?<!\w){re.escape(held)}(?:\.(?:items|values)\(\))?\W*:"
    if not (value.replace(" ", "") in _EMPTY or shortened) or not re.match(over, head):
        return None
    changed = f"{name}[:] = {value}" if shortened else f"{name}.clear()"
    said = (
        f" Line {place.line} gives the name `{name}` another value, and leaves what `{held}` holds as it is: nothing "
        "empties it."
    )
    fix = f"Change what `{held}` holds in line {place.line}, not the variable of the loop."
    return LeftFull(place, said, fix, changed, own.changed(changed))
