"""The script's own line where an exception came, as it would not raise, or a line above it that shows why it does."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.datasets import batch_of_one
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.editing.remade import graphs, validating

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Location

_LOSSES: Final = re.compile(r"loss|crit|entropy|nll|measure", re.IGNORECASE)
_MODULES: Final = frozenset({"torch", "nn", "F", "np", "numpy", "math", "self"})
_MOST: Final = 4
_PARTS: Final = (ast.Name, ast.Attribute, ast.Subscript)


def example(family: str, process: Process, where: Location | None) -> str:
    """What a family of exceptions asks for, in the words of the line; empty where the line does not tell it."""
    made = _EXAMPLES.get(family)
    return made(process, where) if made is not None and where is not None else ""


def _in_no_grad(process: Process, where: Location | None) -> str:
    own = own_statement.at(process, where)
    return validating.under(process, where) if own is not None and own.is_whole else ""


def _labels(process: Process, where: Location | None) -> str:
    """The targets that the only loss of the line is given, against the number of classes."""
    line = _parsed(process, where)
    calls = [node for node in ast.walk(line.tree) if isinstance(node, ast.Call)] if line is not None else []
    calls = [call for call in calls if _LOSSES.search(name_of(call.func)) and len(call.args) > 1]
    given = calls[0].args[1] if len(calls) == 1 else None
    if line is None or not isinstance(given, _PARTS):
        return ""
    labels = line.text_of(given)
    return f"assert 0 <= {labels}.min() and {labels}.max() < num_classes  # above line {where.line if where else 0}"


def _shapes(process: Process, where: Location | None) -> str:
    """The shapes of what the line gives to its calls and operators, of whatever kind each is."""
    line = _parsed(process, where)
    if line is None or where is None:
        return ""
    given = [one for node in ast.walk(line.tree) for one in _operands(node)]
    named = dict.fromkeys(ast.unparse(one) for one in given if isinstance(one, ast.Name | ast.Attribute))
    names = [name for name in named if name.split(".")[0] not in _MODULES or name.startswith("self.")][:_MOST]
    if not names:
        return ""
    each = f"({', '.join(names)}{',' * (len(names) == 1)})"
    return f'print([getattr(one, "shape", one) for one in {each}])  # above line {where.line}'


def _operands(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return [*node.args, *(one.value for one in node.keywords)]
    return [node.left, node.right] if isinstance(node, ast.BinOp) else []


def _parsed(process: Process, where: Location | None) -> ParsedLine | None:
    own = own_statement.at(process, where)
    return own.parsed if own is not None else None


_EXAMPLES: Final[dict[str, Callable[[Process, Location | None], str]]] = {
    "leaf-inplace": _in_no_grad,
    "grad-is-none": graphs.updated_in_place,
    "grad-is-none-in-update": graphs.updated_in_place,
    "label-out-of-range": _labels,
    "shape-mismatch": _shapes,
    "batchnorm-single-value": lambda process, _where: batch_of_one.example(process),
}
