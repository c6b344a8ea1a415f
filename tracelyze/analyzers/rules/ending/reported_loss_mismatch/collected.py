"""The line that collects losses which are divided for accumulation already, and what it is with that taken back."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.loss import assignment
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff

READ = ("item", "detach")
LOGS = "log"  # of Lightning: `self.log("train_loss", loss)`


class Collected(NamedTuple):
    """The line that reads the loss, its text with the divisor, and the edit."""

    place: Location
    code: str
    diff: Diff | None


def divided(process: Process, backward: Location | None) -> Collected | None:
    """The only line of the function that reads the loss behind the only one that divides it by a name or a number."""
    loss = assignment.name_of(backward)
    if backward is None or not loss:
        return None
    lines = recorded_text.of_function(process, backward)
    divisors: list[tuple[int, str]] = []
    found: list[tuple[int, OwnStatement, ast.expr]] = []
    for number, text in sorted(lines.items()):
        own = own_statement.at(process, backward.at(number, text))
        if own is None or own.line != number or not own.is_whole:
            continue
        if divisor := _divisor(own, loss):
            divisors.append((number, divisor))
        found += [(number, own, call) for call in own.parsed.calls(*READ) if _of(own, call, loss)]
        given = [one.args[1] for one in own.parsed.calls(LOGS) if len(one.args) > 1]
        found += [(number, own, one) for one in given if own.parsed.text_of(one) == loss]
    if len(divisors) != 1 or len(found) != 1 or found[0][0] < divisors[0][0]:
        return None
    number, own, read = found[0]
    again = _divided_again(own, read, divisors[0][1])
    undone = {again: own.parsed.text_of(read)} if again else {read: f"{own.parsed.text_of(read)} * {divisors[0][1]}"}
    text = own.parsed.with_parts(undone)
    place = backward.at(number, lines[number])
    return Collected(place, own.dedented(text), own.changed(text))


def _of(own: OwnStatement, call: ast.Call, loss: str) -> bool:
    """Whether it is `loss.item()`, or `loss.detach()`, as an argument or a term of a sum."""
    return isinstance(call.func, ast.Attribute) and own.parsed.text_of(call.func.value) == loss


def _divided_again(own: OwnStatement, read: ast.expr, divisor: str) -> ast.expr | None:
    """The quotient of what is read and the same divisor, `loss.item() / n`; None where it is not divided once more."""
    for node in ast.walk(own.parsed.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and node.left is read:
            return node if own.parsed.text_of(node.right) == divisor else None
    return None


def _divisor(own: OwnStatement, loss: str) -> str:
    """What a statement divides the loss by and keeps as the loss: `loss = loss / n`, `loss /= n`."""
    given = own.parsed.statement
    target: ast.expr
    if isinstance(given, ast.AugAssign) and isinstance(given.op, ast.Div):
        target, value = given.target, given.value
    elif isinstance(given, ast.Assign) and isinstance(given.value, ast.BinOp) and isinstance(given.value.op, ast.Div):
        target, value = given.targets[0], given.value.right
    else:
        return ""
    plain = isinstance(value, ast.Name | ast.Attribute | ast.Constant)
    named = isinstance(target, ast.Name | ast.Attribute) and own.parsed.text_of(target) == loss
    return own.parsed.text_of(value) if plain and named and parsed_line.is_operand(value) else ""
