"""Values that a line scales into a name which no line computes with: the model is given what they were before."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import script_lines
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.analyzers.evidence.remedy import Remedy
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.own_statement import OwnStatement
    from tracelyze.analyzers.recorded.run import Process

_SCALES: Final = ("transform", "fit_transform", "normalize", "standardize")


def remedy(process: Process) -> Remedy | None:
    """The first line that takes what was scaled as it was before, with the scaled values in it; None where several
    functions hold such lines."""
    scaled = {one.line: one for one in process.locations("unread")}
    taken = [one for _, one in sorted({one.line: one for one in process.locations("raw")}.items())]
    place = script_lines.only_of(taken)
    if place is None or len({one.file_function for one in (place, *scaled.values())}) > 1:
        return None
    named = {one.line: found for one in scaled.values() if (found := _named(own_statement.at(process, one)))}
    lines = [_with_scaled(own_statement.at(process, one), list(named.values())) for one in taken]
    first = next(((number, one) for number, one in sorted(named.items()) if _is_read(one[1], place.source)), None)
    if first is None:
        return None
    number, (name, before) = first
    others = [str(one.line) for one in taken[1:]]
    fix = (
        f"Take {name} in line {place.line}: line {number} scales {before} into it, and no line computes with the "
        f"result. Line {place.line} takes {before} as it was."
        + (f" The same goes for line{'s' * (len(others) > 1)} {listed(others, most=4)}." if others else "")
    )
    return Remedy(fix, "\n".join(text for text in lines if text), place)


def _is_read(name: str, source: str) -> bool:
    """Whether a line reads what goes by this name, and not by a longer one."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", source) is not None


def _named(own: OwnStatement | None) -> tuple[str, str] | None:
    """The name that such a line gives, and what it scales."""
    made = own.parsed.statement if own is not None else None
    if own is None or not isinstance(made, ast.Assign) or not isinstance(made.targets[0], ast.Name):
        return None
    call = own.only_call(*_SCALES)
    value = made.value
    if call is not None and call.args:
        return made.targets[0].id, own.parsed.text_of(call.args[0])
    if isinstance(value, ast.BinOp) and isinstance(value.left, ast.BinOp) and isinstance(value.left.left, ast.Name):
        return made.targets[0].id, value.left.left.id
    return None


def _with_scaled(own: OwnStatement | None, named: list[tuple[str, str]]) -> str:
    """The statement with scaled values in place of those before; empty where it takes none of them, or one twice."""
    if own is None or not own.is_whole:
        return ""
    nodes = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.expr)]
    parts: dict[ast.expr, str] = {}
    for name, before in named:
        same = [one for one in nodes if own.parsed.text_of(one) == before]
        parts |= {same[0]: name} if len(same) == 1 else {}
    return own.dedented(own.parsed.with_parts(parts)) if parts else ""
