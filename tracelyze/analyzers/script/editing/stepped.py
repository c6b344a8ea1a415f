"""Which of several calls of `step` in one line is the optimizer's, and which the scheduler's."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.names import places_in

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process

_MADE_BY: Final = {"step": ("optimizer", "scheduler"), "schedule": ("scheduler", "optimizer")}
"""By the role of a line that steps: the lines that make what it steps, and those that make the other thing."""


def meant(process: Process, role: str, found: Iterable[re.Match[str]]) -> list[re.Match[str]]:
    """What a pattern found in a line of this role, without the calls of other things: those are told apart by the lines
    that made them. Of other roles everything."""
    every = list(found)
    if role not in _MADE_BY:
        return every
    own, other = (_made(process, kind) for kind in _MADE_BY[role])
    left = [one for one in every if called(one) not in other - own]
    return [one for one in left if called(one) in own] or left


def called(found: re.Match[str]) -> str:
    """The name that was found: of what is stepped itself, or handed to a scaler."""
    return found["name"] or found.groupdict().get("scaled") or ""


def _made(process: Process, role: str) -> set[str]:
    """The names that lines of this role give to what they make, as far as each line says so."""
    beside = {one.file_line for kind in _MADE_BY["step"] if kind != role for one in process.locations(kind)}
    names: set[str] = set()
    for line in process.locations(role):
        assigned = _assigned(line.source)
        if line.file_line not in beside:
            names |= set(assigned)
            continue
        over = {name for name, value in assigned.items() if places_in(value) & (assigned.keys() - {name})}
        names |= over if role == "scheduler" else assigned.keys() - over if over else set()
    return names


def _assigned(source: str) -> dict[str, ast.expr]:
    """The values of a line that are calls, by the names they are given; a line that goes on below ends too early."""
    for text in (source, f"{source})", f"{source})])"):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        pairs = [pair for one in tree.body if isinstance(one, ast.Assign) for pair in _pairs(one)]
        return {ast.unparse(target): value for target, value in pairs if isinstance(value, ast.Call)}
    return {}


def _pairs(statement: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    target, value = statement.targets[-1], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)] if isinstance(target, ast.Name | ast.Attribute) else []
