"""A warm-up that never ends: the factor of a LambdaLR that grows with the step, and that nothing caps at 1."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.analyzers.evidence.editing.parsed_line import name_of
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

_CAPS = ("min", "clip", "clamp")


def endless(optimization: Optimization, stable: float) -> tuple[str, str] | None:
    """What to do, and the statement with the cap, where the rate that the factor multiplies is one at which the loss
    fell, `stable` at most; None where the statement holds no such factor."""
    row = schedulers.outer(optimization)
    base = row["base_lr"] if row is not None else None
    own = own_statement.at(optimization.process, optimization.process.site(row["made_at"])) if row is not None else None
    call = own.only_call("LambdaLR") if own is not None else None
    factors = [one for one in ast.walk(call) if isinstance(one, ast.Lambda)] if call is not None else []
    if own is None or not base or base > stable or len(factors) != 1 or not own.is_whole:
        return None
    factor = factors[0]
    if not _grows(factor.body, {one.arg for one in factor.args.args}):
        return None
    text = own.parsed.with_parts({factor.body: f"min(1.0, {own.parsed.text_of(factor.body)})"})
    fix = (
        f"Cap the factor at 1 in line {own.line}: it goes on growing behind the warm-up. At 1 the rate is "
        f"{number(base)}, at which the loss fell."
    )
    return fix, own.dedented(text)


def _grows(body: ast.expr, steps: set[str]) -> bool:
    """Whether a number of the step is divided, and nothing chooses or caps the quotient."""
    nodes = list(ast.walk(body))
    capped = any(isinstance(one, ast.Call) and name_of(one.func) in _CAPS for one in nodes)
    chosen = any(isinstance(one, ast.IfExp | ast.Compare | ast.BoolOp) for one in nodes)
    if capped or chosen or not isinstance(body, ast.BinOp) or not isinstance(body.op, ast.Div):
        return False
    inside = {one.id for one in ast.walk(body.left) if isinstance(one, ast.Name)}
    plain = not any(isinstance(one, ast.Call) and name_of(one.func) not in ("float", "int") for one in nodes)
    return bool(inside & steps) and plain and not any(isinstance(one, ast.Sub) for one in nodes)
