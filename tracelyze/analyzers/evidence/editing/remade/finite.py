"""The script's own statement with what it divides by, or takes a logarithm of, kept away from zero."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import own_statement, parsed_line
from tracelyze.analyzers.evidence.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.own_statement import OwnStatement
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SPREADS: Final = ("std", "nanstd")
_COUNTS: Final = ("sum", "count_nonzero")
_LOGARITHMS: Final = ("log", "log2", "log10")
_ROOTS: Final = ("sqrt",)
_NOT_OF_TENSORS: Final = ("math", "np", "numpy")
_NEVER_NEGATIVE: Final = ("std", "var", "norm")


def divided(process: Process, place: Location | None) -> str:
    """With an epsilon beside each standard deviation, else beside each divisor that is computed, and beside what it
    divides if the line takes the logarithm of the quotient; of tensors as of NumPy's arrays. Empty where the line does
    neither."""
    own = own_statement.at(process, place)
    if own is None or not own.is_whole:
        return ""
    parts: dict[ast.expr, str] = {one: f"({own.parsed.text_of(one)} + 1e-6)" for one in own.parsed.calls(*_SPREADS)}
    both = [*_divisors(own.parsed.tree), *(one.left for one in log_quotients(own))]
    parts = parts or {one: f"({own.parsed.text_of(one)} + 1e-6)" for one in both}
    return own.dedented(own.parsed.with_parts(parts)) if parts and not _nested(parts) else ""


def counted(own: OwnStatement) -> str:
    """With each divisor that is a sum, a deviation or a norm bounded from below; empty without one."""
    parts: dict[ast.expr, str] = {}
    for one in _divisors(own.parsed.tree):
        name = name_of(one.func) if isinstance(one, ast.Call) else ""
        if name in _COUNTS or name in _NEVER_NEGATIVE:
            parts[one] = f"{own.parsed.text_of(one)}.clamp_min({'1' if name in _COUNTS else '1e-8'})"
    return own.dedented(own.parsed.with_parts(parts)) if parts and own.is_whole and not _nested(parts) else ""


def logarithms(own: OwnStatement) -> str:
    """With each thing that a logarithm is taken of bounded from below; empty where none is known to be a tensor's."""
    return _bounded(own, _LOGARITHMS)


def roots(own: OwnStatement) -> str:
    """The same for roots."""
    return _bounded(own, _ROOTS)


def _bounded(own: OwnStatement, names: tuple[str, ...]) -> str:
    parts: dict[ast.expr, str] = {}
    for call in own.parsed.calls(*names):
        holder = call.func.value if isinstance(call.func, ast.Attribute) else None
        if holder is None or name_of(holder) in _NOT_OF_TENSORS:
            return ""
        by_function = parsed_line.is_function_of_torch(call.func)
        given = (call.args[0] if len(call.args) == 1 else None) if by_function else holder
        if given is None or (call.args and not by_function):
            return ""
        parts[given] = f"{own.parsed.operand(given)}.clamp_min(1e-8)"
    return own.dedented(own.parsed.with_parts(parts)) if parts and own.is_whole and not _nested(parts) else ""


def log_quotients(own: OwnStatement) -> list[ast.BinOp]:
    """The quotients that the line takes the logarithm of: it is infinite where either side is 0."""
    calls = own.parsed.calls(*_LOGARITHMS)
    given = [one.args[0] if one.args else getattr(one.func, "value", None) for one in calls]
    return [one for one in given if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]


def _divisors(tree: ast.AST) -> list[ast.expr]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
    return [node.right for node in nodes if not isinstance(node.right, ast.Constant)]


def _nested(parts: dict[ast.expr, str]) -> bool:
    return any(one is not other and one in ast.walk(other) for one in parts for other in parts)
