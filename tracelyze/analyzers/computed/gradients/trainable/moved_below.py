"""An optimizer that is made above the line which gives the model a new part: the statements to move below that line."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.names import read_in
from tracelyze.diagnosis import Location
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_HOLDER: Final = re.compile(r"\s*(?P<root>\w+)[\w.\[\]]*\s*(?::[^=]+)?=(?!=)")
_MOST: Final = 5
"""Statements that an example can bear."""


class MovedBelow(NamedTuple):
    """`optimizer`: the statement that makes the optimizer, in the function of the new part; the example that moves it,
    and all that is made of it, below."""

    optimizer: Location
    code: str


def of(optimization: Optimization, put_in: Location) -> MovedBelow | None:
    """None unless every line between the two was recorded, and all statements that have to move stand side by side."""
    process, lines = optimization.process, recorded_text.of_function(optimization.process, put_in)
    made, part = _made(optimization, put_in, lines), own_statement.at(process, put_in)
    found = _HOLDER.match(put_in.source)
    if made is None or part is None or found is None or made.indent != part.indent:
        return None
    between = range(made.line + made.text.count("\n") + 1, put_in.line)
    if not all(at in lines for at in between):
        return None
    above = _given(process, put_in, lines, made, found["root"])
    below = _made_of(process, put_in, lines, made, between)
    moved = [*above, made, *below] if above is not None and below is not None else []
    if not 0 < len(moved) <= _MOST:
        return None
    numbers = listed([f"{one.line}" for one in moved], most=_MOST)
    end = part.line + part.text.count("\n")
    head = f"# below line {end}, in place of line{'s' * (len(moved) > 1)} {numbers}:"
    code = "\n".join([head, *(one.dedented(one.text) for one in moved)])
    return MovedBelow(put_in.at(made.line, made.text), code)


def _made(optimization: Optimization, put_in: Location, lines: dict[int, str]) -> OwnStatement | None:
    """The statement that makes the optimizer above the new part, by itself or by the script's own function."""
    made = optimization.made_at
    if made is None or made.file != put_in.file:
        return None
    if made.file_function == put_in.file_function:
        return _statement(optimization.process, put_in, lines, made.line) if made.line < put_in.line else None
    calls = re.compile(rf"\b{re.escape(made.function)}\(") if made.function.isidentifier() else None
    at = [number for number, line in lines.items() if calls is not None and calls.search(code_of(line))]
    own = _statement(optimization.process, put_in, lines, at[0]) if len(at) == 1 and at[0] < put_in.line else None
    return own if own is not None and _targets(own) else None


def _given(
    process: Process, put_in: Location, lines: dict[int, str], made: OwnStatement, model: str
) -> list[OwnStatement] | None:
    """The statements above that take parameters from the model for the optimizer, which hold those of the old part."""
    found: dict[int, OwnStatement] = {}
    waiting = [made]
    while waiting:
        for name in read_in(waiting.pop().parsed.tree) - {model}:
            at = [number for number, line in lines.items() if number < made.line and _sets(name, line)]
            grown = any(not re.match(rf"\s*{name}\s*[:=]", lines[number]) for number in at)
            if not grown and not any(re.search(rf"param|\b{re.escape(model)}\b", lines[number]) for number in at):
                continue
            own = _statement(process, put_in, lines, at[0])
            if len(at) != 1 or own is None or own.indent != made.indent:
                return None
            if own.line not in found:
                found[own.line] = own
                waiting.append(own)
    return [found[line] for line in sorted(found)]


def _made_of(
    process: Process, put_in: Location, lines: dict[int, str], made: OwnStatement, between: range
) -> list[OwnStatement] | None:
    """The statements between that are given the optimizer, as a scheduler is: it keeps the groups that it finds."""
    moved: dict[int, OwnStatement] = {}
    names = _targets(made)
    for at in between:
        if not names or not any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", code_of(lines[at])) for name in names):
            continue
        own = _statement(process, put_in, lines, at)
        if own is None or own.indent != made.indent:
            return None
        moved[own.line] = own
        names |= _targets(own)
    return [moved[line] for line in sorted(moved)] if names else None


def _sets(name: str, line: str) -> bool:
    """Whether a line assigns a name or adds to what it holds."""
    sets = rf"\s*{name}\s*(?::[^=]+)?=(?!=)|.*\b{name}(?:\s*\+=|\.(?:append|extend|insert|add)\()"
    return re.match(sets, code_of(line)) is not None


def _statement(process: Process, put_in: Location, lines: dict[int, str], at: int) -> OwnStatement | None:
    own = own_statement.at(process, put_in.at(at, lines.get(at, "")))
    return own if own is not None and own.stands and own.is_whole else None


def _targets(own: OwnStatement) -> set[str]:
    """What a statement assigns, names and attributes."""
    statement = own.parsed.statement
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    each = [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return {ast.unparse(one) for one in each if isinstance(one, ast.Name | ast.Attribute)}
