"""The line of a loss that divides a sum by a number of its own, as `(nll * mask).sum() / mask.sum()`, and what it is
with the number of the whole step."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.names import names_in
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

REACH: Final = 8  # lines between a loss function that is called and the line that divides what it gives
SUMMED: Final = ("sum", "nansum")
COUNTED: Final = ("sum", "count_nonzero", "clamp", "clamp_min", "clip", "item", "float", "max")


class Divided(NamedTuple):
    """The line, and an example: its statement over the targets of the step."""

    place: Location
    code: str


def by_own_count(process: Process, place: Location | None, number: str, again: bool = False) -> Divided | None:
    """The only such statement at or right below a line that computes losses, with `number` as its divisor. `again`:
    what is divided once more, by a name or a constant, is not."""
    if place is None:
        return None
    lines = recorded_text.of_function(process, place)
    found: dict[int, Divided] = {}
    for line in range(place.line, place.line + REACH + 1):
        at = place.at(line, lines.get(line, ""))
        own = own_statement.at(process, at)
        divided = _example(own, number, again) if own is not None and own.is_whole and own.line == line else ""
        if divided:
            found[line] = Divided(at, divided)
    return next(iter(found.values())) if len(found) == 1 else None


def summed(process: Process, place: Location | None, functions: Collection[str], number: str) -> str:
    """The statement with its only call of one of these losses as a sum, divided by `number`; empty where it has none,
    or one that says how it is reduced by position."""
    own = own_statement.at(process, place)
    text = own.with_argument(tuple(functions), "reduction", '"sum"') if own is not None and own.is_whole else ""
    parsed = parsed_line.parse(text) if text else None
    calls = parsed.calls(*functions) if parsed is not None else []
    if own is None or parsed is None or len(calls) != 1:
        return ""
    return own.dedented(parsed.with_parts({calls[0]: f"{parsed.text_of(calls[0])} / {number}"}))


def _example(own: OwnStatement, number: str, again: bool) -> str:
    """The statement by the `number` of targets of the step, and how that is found; empty where it is another one."""
    divisions = [
        node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    ]
    means = [node for node in divisions if _calls(node.left, SUMMED) and _calls(node.right, COUNTED)]
    if len(means) != 1:
        return ""
    mean, divisor = means[0], means[0].right
    outer = [one for one in divisions if again and one.left is mean and isinstance(one.right, ast.Name | ast.Constant)]
    names = names_in(divisor)
    counted = "..."
    if len(names) == 1 and not isinstance(divisor, ast.BinOp):
        name = names.pop()
        counted = f"sum({own.parsed.text_of(divisor)} for {name} in {name}s)"
    changed: dict[ast.expr, str] = {divisor: number}
    if outer:
        changed = {outer[0]: f"{own.parsed.operand(mean.left)} / {number}"}
    return f"{number} = {counted}  # of all micro-batches of the step, before its first backward\n" + own.dedented(
        own.parsed.with_parts(changed)
    )


def _calls(node: ast.expr, names: tuple[str, ...]) -> bool:
    """Whether it is what a method of one of these names gives, or what is added to that."""
    if isinstance(node, ast.BinOp):
        return _calls(node.left, names)
    if isinstance(node, ast.UnaryOp):
        return _calls(node.operand, names)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names
