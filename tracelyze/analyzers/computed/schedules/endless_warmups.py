"""A warm-up that never ends: the factor of a LambdaLR that grows with the step, and that nothing caps at 1."""

from __future__ import annotations

import ast
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.names import names_in
from tracelyze.diagnosis import Diff, Location
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_CAPS = ("min", "clip", "clamp")


class Cap(NamedTuple):
    """The statement that computes the factor, and the same with its factor capped at 1."""

    place: Location
    fix: str
    code: str
    diff: Diff | None


class _Factor(NamedTuple):
    """What a statement of the script makes of these parameters."""

    own: OwnStatement
    function: str
    value: ast.expr
    parameters: set[str]


def endless(optimization: Optimization, stable: float) -> Cap | None:
    """What to do, and the statement with the cap, where the rate that the factor multiplies is one at which the loss
    fell, `stable` at most; None where the statement holds no such factor."""
    row = schedulers.outer(optimization)
    base = row["base_lr"] if row is not None else None
    made = optimization.process.site(row["made_at"]) if row is not None else None
    factor = _factor(optimization.process, made)
    if made is None or factor is None or not base or base > stable or not _grows(factor.value, factor.parameters):
        return None
    own = factor.own
    text = own.parsed.with_parts({factor.value: f"min(1.0, {own.parsed.text_of(factor.value)})"})
    fix = (
        f"Cap the factor at 1 in line {own.line}: it goes on growing behind the warm-up. At 1 the rate is "
        f"{number(base)}, at which the loss fell."
    )
    place = Location(own.file, own.line, factor.function, own.text)
    return Cap(place, fix, own.dedented(text), own.changed(text))


def _factor(process: Process, made: Location | None) -> _Factor | None:
    """The factor of the only LambdaLR that a line makes: a lambda there, or a function of one `return`."""
    own = own_statement.at(process, made)
    call = own.only_call("LambdaLR") if own is not None else None
    if made is None or own is None or call is None or not own.is_whole:
        return None
    factors = [one for one in ast.walk(call) if isinstance(one, ast.Lambda)]
    if len(factors) == 1:
        return _Factor(own, made.function, factors[0].body, {one.arg for one in factors[0].args.args})
    given = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "lr_lambda")]
    named = given[0].id if not factors and len(given) == 1 and isinstance(given[0], ast.Name) else None
    return _returned(process, named) if named else None


def _returned(process: Process, name: str) -> _Factor | None:
    """What the function of this name returns, in the only statement that it has beside its docstring."""
    place = script_lines.only(process, "rates", rf"^def {name}\(")
    function = _function(process, place) if place is not None else None
    if place is None or function is None:
        return None
    *before, last = function.body
    if not isinstance(last, ast.Return) or last.value is None or not all(_is_docstring(one) for one in before):
        return None
    line = place.line + last.lineno - function.lineno
    source = recorded_text.around(process, place)[line]
    own = own_statement.at(process, place.at(line, source))
    returned = own.parsed.statement if own is not None else None
    if own is None or not isinstance(returned, ast.Return) or returned.value is None:
        return None
    return _Factor(own, place.function, returned.value, {one.arg for one in function.args.args})


def _function(process: Process, place: Location) -> ast.FunctionDef | None:
    """The function that begins at a place, if all of it was recorded."""
    lines = recorded_text.around(process, place)
    text = [lines.get(place.line, "")]
    depth = recorded_text.indent_of(text[0])
    for at in range(place.line + 1, max(lines, default=0) + 1):
        line = lines.get(at)
        if line is None or (line.strip() and recorded_text.indent_of(line) <= depth):
            break
        text.append(line)
    parsed = parsed_line.parse(textwrap.dedent("\n".join(text)).strip())
    function = parsed.statement if parsed is not None else None
    return function if isinstance(function, ast.FunctionDef) else None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _grows(body: ast.expr, steps: set[str]) -> bool:
    """Whether a number of the step is divided, and nothing chooses or caps the quotient."""
    nodes = list(ast.walk(body))
    capped = any(isinstance(one, ast.Call) and name_of(one.func) in _CAPS for one in nodes)
    chosen = any(isinstance(one, ast.IfExp | ast.Compare | ast.BoolOp) for one in nodes)
    if capped or chosen or not isinstance(body, ast.BinOp) or not isinstance(body.op, ast.Div):
        return False
    inside = names_in(body.left)
    plain = not any(isinstance(one, ast.Call) and name_of(one.func) not in ("float", "int") for one in nodes)
    return bool(inside & steps) and plain and not any(isinstance(one, ast.Sub) for one in nodes)
