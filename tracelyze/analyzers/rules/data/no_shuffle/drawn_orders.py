"""Lines that draw an order and throw it away: `permutation` returns a copy in a new order, and changes nothing."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_DRAW: Final = ("permutation", "randperm")


def thrown_away(process: Process) -> tuple[Location, Diff | None] | None:
    """The only line of the script that draws an order which nothing takes, and the edit that assigns it to the name
    that was to be put into a new order."""
    found: list[tuple[Location, Diff | None]] = []
    for line in process.locations("split"):
        own = own_statement.at(process, line)
        statement = own.parsed.statement if own is not None else None
        call = own.only_call(*_DRAW) if own is not None else None
        if own is None or call is None or not isinstance(statement, ast.Expr) or statement.value is not call:
            continue
        named = isinstance(call.func, ast.Attribute) and call.func.attr == "permutation" and len(call.args) == 1
        name = call.args[0] if named and isinstance(call.args[0], ast.Name) else None
        found.append((line, own.changed(f"{name.id} = {own.text}") if name is not None else None))
    return found[0] if len(found) == 1 else None
