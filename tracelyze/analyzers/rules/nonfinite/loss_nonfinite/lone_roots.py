"""The only line that can make NaN of finite numbers, where the first loss is NaN and its graph says nothing: a root of
what is computed without a gradient, such as the degrees of a graph with signed weights."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.loss import broken_operation
from tracelyze.analyzers.script.loss.singular_gradients import Spoiled

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_ROOTS: Final = ("sqrt", "rsqrt")
_FIX: Final = (
    "See what goes into line {line}: a root of a number below 0 is NaN, and so is a power such as -0.5. A sum of "
    "signed weights, as the degree of a node, can be below 0; a sum of their absolute values is not."
)


def of(process: Process, step: int) -> Spoiled | None:
    """For the first loss (of this step, the first is 1), where no operation of its graph, no weight and no target was
    seen to break; None where several lines may be meant."""
    seen = broken_operation.seen(process, step)
    if step != 1 or seen.told or process.events_of("nonfinite-taken-in", "nonfinite-target"):
        return None
    lines = [one for one in process.locations("singular") if script_lines.is_differentiated(process, one)]
    place = lines[0] if len({one.file_line for one in lines}) == 1 else None
    own = own_statement.at(process, place)
    taken = _taken(own.parsed.tree) if own is not None else []
    if place is None or own is None or len(taken) != 1:
        return None
    plain = isinstance(taken[0], ast.Name | ast.Attribute | ast.Subscript)
    text = own.parsed.text_of(taken[0])
    return Spoiled(
        f"Line {place.line} can have made it, by a root, or a power that is no whole number, of a number below 0: no "
        "other line of the training was found that divides, or takes a root or a logarithm.",
        _FIX.format(line=place.line),
        f"assert bool(({text} >= 0).all()), {text}.min()  # above line {place.line}" if plain else "",
        None,
        place,
    )


def _taken(tree: ast.AST) -> list[ast.expr]:
    """What roots and powers that are no whole numbers are taken of."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and _is_broken(node.right):
            found.append(node.left)
        if not isinstance(node, ast.Call) or parsed_line.name_of(node.func) not in (*_ROOTS, "pow"):
            continue
        given = list(node.args)
        if not parsed_line.is_function_of_torch(node.func) and isinstance(node.func, ast.Attribute):
            given.insert(0, node.func.value)
        is_power = parsed_line.name_of(node.func) == "pow"
        if given and (not is_power or (len(given) > 1 and _is_broken(given[1]))):
            found.append(given[0])
    return found


def _is_broken(exponent: ast.expr) -> bool:
    """Whether it is a number, and no whole one."""
    try:
        value = ast.literal_eval(exponent)
    except ValueError:
        return False
    return isinstance(value, float) and math.isfinite(value) and not value.is_integer()
