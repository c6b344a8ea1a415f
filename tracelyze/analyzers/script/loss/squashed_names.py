"""A loss that is given the name of a softmax or sigmoid: `p = softmax(scores)` above, `loss = criterion(p, y)` here."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.names import names_in

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_FARTHEST: Final = 8  # lines between both


def given_scores(process: Process, loss: Location | None, squashing: str) -> Diff | None:
    """The line of the loss with the scores in place of the name; whatever else uses the name keeps it.

    None where not every line from the one to the other is known, or one of them may change the scores.
    """
    own = own_statement.at(process, loss)
    if own is None or loss is None:
        return None
    given = [
        call.args[0]
        for call in ast.walk(own.parsed.tree)
        if isinstance(call, ast.Call) and len(call.args) > 1 and isinstance(call.args[0], ast.Name)
    ]
    lines = recorded_text.of_function(process, loss)
    found: dict[ast.expr, str] = {}
    for name in given:
        scores = _scores(lines, own.line, own.indent, name.id, squashing)
        found |= {name: scores} if scores else {}
    return own.changed(own.parsed.with_parts(found)) if len(found) == 1 else None


def _scores(lines: dict[int, str], end: int, indent: str, name: str, squashing: str) -> str | None:
    """What the name is the softmax of, by a plain assignment of the same block above line `end`."""
    touched: set[str] = set()  # names that a line between gives another value, or may change
    for number in range(end - 1, max(0, end - _FARTHEST), -1):
        if number not in lines:
            return None
        text = code_of(lines[number])
        line = parsed_line.parse(text.strip()) if text else None
        if not text:
            continue
        if line is None or not isinstance(line.statement, ast.Assign | ast.Expr) or text != f"{indent}{text.strip()}":
            return None
        own = line.statement.targets if isinstance(line.statement, ast.Assign) else []
        if isinstance(line.statement, ast.Assign) and [parsed_line.name_of(one) for one in own] == [name]:
            scores = _argument(line.statement.value, squashing)
            used = names_in(scores) if scores else set()
            return line.text_of(scores) if scores and not (used | {name}) & touched and name not in used else None
        plain = all(isinstance(node, ast.Name | ast.Tuple) for node in own) and bool(own)
        touched |= {
            node.id
            for node in ast.walk(line.tree)
            if isinstance(node, ast.Name) and (not plain or isinstance(node.ctx, ast.Store))
        }
    return None


def _argument(value: ast.expr, squashing: str) -> ast.expr | None:
    """What is squashed: the first argument of the function, or what the method belongs to."""
    if not isinstance(value, ast.Call) or parsed_line.name_of(value.func) != squashing:
        return None
    if parsed_line.is_function_of_torch(value.func):
        return value.args[0] if value.args else None
    return value.func.value if isinstance(value.func, ast.Attribute) else None
