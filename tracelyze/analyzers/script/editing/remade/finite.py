"""The script's own statement with what it divides by, or takes a logarithm of, kept away from zero; with logarithms
of sigmoids, which may be 0 or 1, computed from their logits."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import is_operand, name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
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


def log_sigmoids(process: Process, place: Location | None) -> str:
    """With each logarithm of a sigmoid, or of 1 less a sigmoid, computed from its logits; empty where one is of
    something else."""
    own, parts = own_statement.at(process, place), dict[ast.expr, str]()
    for call in own.parsed.calls("log", "log1p") if own is not None and own.is_whole else ():
        part, less = _probability(call)
        logits = _logits(process, place, part) if part is not None else None
        if logits is None:
            return ""
        text = ast.unparse(logits) if is_operand(logits) else f"({ast.unparse(logits)})"
        parts[call] = f"torch.nn.functional.logsigmoid({'-' * less}{text})"
    return own.dedented(own.parsed.with_parts(parts)) if own is not None and parts and not _nested(parts) else ""


def _probability(call: ast.Call) -> tuple[ast.expr | None, bool]:
    """What a logarithm is taken of, and whether of 1 less that: `log(p)`, `log(1 - p)`, `log1p(-p)`."""
    taken, is_log1p = _given(call), name_of(call.func) == "log1p"
    if is_log1p:
        below = taken.operand if isinstance(taken, ast.UnaryOp) and isinstance(taken.op, ast.USub) else None
        return below, True
    if isinstance(taken, ast.BinOp):
        less = isinstance(taken.op, ast.Sub) and ast.unparse(taken.left) in ("1", "1.0")
        return (taken.right, True) if less else (None, False)
    return taken, False


def _logits(process: Process, place: Location | None, part: ast.expr) -> ast.expr | None:
    """What a sigmoid is taken of: here, or in the only statement of the function that assigns this name."""
    if isinstance(part, ast.Call) and name_of(part.func) in ("clamp", "clip"):
        return _logits(process, None, part.func.value) if isinstance(part.func, ast.Attribute) else None
    if isinstance(part, ast.Call):
        return _given(part) if name_of(part.func) == "sigmoid" else None
    if not isinstance(part, ast.Name) or place is None:
        return None
    lines = [parsed_line.parse(one.strip()) for one in recorded_text.of_function(process, place).values()]
    assigned = [one.statement for one in lines if one is not None and isinstance(one.statement, ast.Assign)]
    own = [one.value for one in assigned if part.id in {node.id for at in one.targets for node in _names(at)}]
    return _logits(process, None, own[0]) if len(own) == 1 else None


def _names(target: ast.expr) -> list[ast.Name]:
    return [node for node in ast.walk(target) if isinstance(node, ast.Name)]


def _given(call: ast.Call) -> ast.expr | None:
    """What a function of torch, or a method of a tensor, is applied to."""
    if parsed_line.is_function_of_torch(call.func):
        return call.args[0] if len(call.args) == 1 else None
    return call.func.value if isinstance(call.func, ast.Attribute) and not call.args else None


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
