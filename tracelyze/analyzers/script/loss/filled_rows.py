"""A softmax that was given a row of nothing but minus infinity: the line that fills its scores, and both lines as they
have to be."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_FILLS: Final = re.compile(r"\bmasked_fill_?\(|-\s*(?:\w+\.)*inf\b|float\(\s*[\"']-inf")
_SOFTMAX: Final = ("softmax",)


class FilledRows(NamedTuple):
    """The line that fills the scores, and what to write instead of it and of the softmax; empty where that is not
    known."""

    place: Location
    code: str


def of(process: Process, softmax: Location) -> FilledRows | None:
    """The only line above a softmax, in its function, that fills what the softmax is taken of; None where it is not
    known, or both stand in one statement."""
    taken = own_statement.at(process, softmax)
    call = taken.only_call(*_SOFTMAX) if taken is not None else None
    scores = _scores(call) if call is not None else ""
    if taken is None or call is None or not scores or not taken.stands:
        return None
    lines = recorded_text.of_function(process, softmax)
    at = [number for number, text in lines.items() if number < taken.line and _FILLS.search(text)]
    places = [softmax.at(one, lines[one]) for one in at]
    known = [own for one in places if (own := own_statement.at(process, one)) is not None]
    filling = {own.line: own for own in known if _fills(own, scores)}
    if len(known) != len(places) or len(filling) != 1:
        return None
    (own,) = filling.values()
    place = softmax.at(own.line, own.text)
    return FilledRows(place, _both(own, taken, call, lines))


def _scores(softmax: ast.Call) -> str:
    """The name of what a softmax is taken of, `scores.softmax(-1)` and `F.softmax(scores, -1)`; empty for more."""
    holder = softmax.func.value if isinstance(softmax.func, ast.Attribute) else None
    given = softmax.args[0] if softmax.args and isinstance(softmax.args[0], ast.Name) else None
    method = isinstance(holder, ast.Name) and holder.id not in ("torch", "F", "nn")
    found = given or (holder if method else None)
    return found.id if isinstance(found, ast.Name) else ""


def _fills(own: OwnStatement, scores: str) -> bool:
    """Whether a statement leaves its result under the name of the scores, and fills in no number that is finite."""
    given = [call.args[1] for call in own.parsed.calls("masked_fill", "masked_fill_") if len(call.args) > 1]
    if any(isinstance(getattr(one, "operand", one), ast.Constant) for one in given):
        return False
    return scores in _targets(own.parsed.statement) or any(
        isinstance(call.func, ast.Attribute) and _is(call.func.value, scores)
        for call in own.parsed.calls("masked_fill_")
    )


def _targets(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = [one.value if isinstance(one, ast.Subscript) else one for one in targets]
    return [one.id for one in names if isinstance(one, ast.Name)]


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _both(own: OwnStatement, taken: OwnStatement, softmax: ast.Call, lines: dict[int, str]) -> str:
    """Both statements, with a mask that leaves alone the rows which it would fill throughout, and with weights of 0
    there; empty unless a call of masked_fill stands right above the softmax."""
    call, dimension = own.only_call("masked_fill", "masked_fill_"), _dimension(softmax)
    end = own.line + own.text.count("\n")
    between = [lines.get(number, "?").strip() for number in range(end + 1, taken.line)]
    if (
        call is None
        or len(call.args) != 2
        or call.keywords
        or not dimension
        or any(between)
        or own.indent != taken.indent
    ):
        return ""
    mask, shown = call.args[0], _shown(own, call.args[0])
    something = f"{shown}.any({dimension}, keepdim=True)"
    filled = own.parsed.with_parts({mask: f"{_operand(own, mask)} & {something}"})
    zeroed = f"{taken.parsed.text_of(softmax)} * {shown}"
    alone = getattr(taken.parsed.statement, "value", None) is softmax
    weights = taken.parsed.with_parts({softmax: zeroed if alone else f"({zeroed})"})
    word = "and" if taken.line == own.line + 1 else "to"
    return f"# in place of lines {own.line} {word} {taken.line}:\n{own.dedented(filled)}\n{taken.dedented(weights)}\n"


def _operand(own: OwnStatement, mask: ast.expr) -> str:
    inverted = isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert)
    return own.parsed.text_of(mask) if inverted else own.parsed.operand(mask)


def _shown(own: OwnStatement, mask: ast.expr) -> str:
    """What the mask leaves of the scores, as an operand."""
    if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert):
        return own.parsed.operand(mask.operand)
    return f"(~{own.parsed.operand(mask)})"


def _dimension(softmax: ast.Call) -> str:
    """Over which dimension it goes, where that is counted from the last one, as for a mask of fewer dimensions."""
    given = [*softmax.args[-1:], *(one.value for one in softmax.keywords if one.arg == "dim")]
    return next((text for one in given if re.fullmatch(r"-\d", text := ast.unparse(one))), "")
