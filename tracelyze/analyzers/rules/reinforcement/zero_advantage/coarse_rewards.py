"""The line of a reward function that makes a share all or nothing: a division without remainder, or a rounding."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Location

_WHOLE: Final = ("round", "int", "floor", "ceil", "trunc")
_CHOOSES: Final = (ast.Subscript, ast.Compare, ast.BoolOp, ast.IfExp)  # what is rounded there is no reward


def within(process: Process, gives: Location | None) -> Location | None:
    """The only line of this reward function that rounds what it gives; else the line itself, that defines it."""
    rewards = gives.file_function if gives is not None else None
    lines = [one for one in process.locations("reward-rounded") if one.file_function == rewards]
    found = [one for one in lines if (own := own_statement.at(process, one)) is not None and _rounding(own.parsed)]
    return found[0] if len(found) == 1 else gives


def remedy(process: Process, place: Location | None) -> tuple[str, str] | None:
    """What to do about a line that rounds a reward, and the line without that; None of any other line."""
    own = own_statement.at(process, place)
    if place is None or own is None or not _rounding(own.parsed):
        return None
    fix = (
        f"Line {place.line} rounds the reward, so that nothing short of all counts, and groups get equal rewards: give "
        "the share itself."
    )
    return fix, _exact(own)


def _rounding(line: ParsedLine) -> list[ast.expr]:
    """The quotients without remainder, and the quotients or products that are made whole, outside of conditions,
    indices and ranges."""
    apart = [one for one in ast.walk(line.tree) if isinstance(one, _CHOOSES)] + list(line.calls("range"))
    if isinstance(line.statement, ast.If | ast.While | ast.For):
        return []
    inside = {id(part) for one in apart for part in ast.walk(one)}
    nodes = [one for one in ast.walk(line.tree) if isinstance(one, ast.expr) and id(one) not in inside]
    quotients: list[ast.expr] = [
        one for one in nodes if isinstance(one, ast.BinOp) and isinstance(one.op, ast.FloorDiv)
    ]
    whole = [one for one in nodes if isinstance(one, ast.Call) and name_of(one.func) in _WHOLE and len(one.args) == 1]
    return [*quotients, *(one for one in whole if not one.keywords and _is_share(one.args[0]))]


def _is_share(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult)


def _exact(own: OwnStatement) -> str:
    """The statement with a division in place of one without remainder, or with what was rounded as it is."""
    parts: dict[ast.expr, str] = {}
    for one in _rounding(own.parsed):
        if isinstance(one, ast.BinOp):
            parts[one] = f"{own.parsed.operand(one.left)} / {own.parsed.operand(one.right)}"
        elif isinstance(one, ast.Call):
            parts[one] = own.parsed.operand(one.args[0])
    nested = any(one is not other and one in ast.walk(other) for one in parts for other in parts)
    return "" if nested or not own.is_whole else own.dedented(own.parsed.with_parts(parts))
