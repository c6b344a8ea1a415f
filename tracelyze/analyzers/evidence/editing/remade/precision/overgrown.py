"""The line in the forward of a module at which numbers grow beyond what float16 holds: its only square, power or
exponential, where the script's text has one; else where the forward begins."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SQUARE, _POWER, _EXPONENTIAL = "square", "power", "exponential"
_CALLS: Final = {
    "square": _SQUARE,
    "pow": _POWER,
    "float_power": _POWER,
    "exp": _EXPONENTIAL,
    "exp2": _EXPONENTIAL,
    "expm1": _EXPONENTIAL,
    "sinh": _EXPONENTIAL,
    "cosh": _EXPONENTIAL,
}
_HOLDS: Final = {
    _SQUARE: ", which float16 holds of numbers up to 255",
    _EXPONENTIAL: ", which float16 holds of numbers up to 11",
    _POWER: "",
}
_NO_TENSORS: Final = ("math", "np", "numpy")


@dataclass(frozen=True)
class Overgrown:
    """`line`: where numbers outgrow float16, or else where the forward begins that they do so in."""

    line: Location
    kind: str = ""
    """What is taken in that line; empty where it takes several, and where no line is known to be the one."""
    remedy: str = ""
    """The statement with float32 numbers for it to be taken of."""

    def said(self) -> str:
        """A sentence on what is taken in that line; empty where that is not known."""
        article = "an" if self.kind == _EXPONENTIAL else "a"
        return f" Line {self.line.line} there takes {article} {self.kind}{_HOLDS[self.kind]}." if self.kind else ""


def within(process: Process, root: dict[str, Any]) -> Overgrown | None:
    """What is known of the forward of a module (a row of the table activations), if it is the script's own."""
    name = root["module"] or ""
    begins = _noted(process, "broken-forward", name)
    if not begins:
        return None
    found: dict[int, Overgrown] = {}
    for place in _noted(process, "powers", name) if root["dtype"] == "float16" else ():
        own = own_statement.at(process, place)
        taken = _taken(own.parsed) if own is not None else []
        if own is not None and taken:
            kinds = {kind for kind, _ in taken}
            operands = [node for _, given in taken for node in given]
            remedy = own.dedented(_in_float32(own.parsed, operands)) if own.is_whole else ""
            found[own.line] = Overgrown(place, kinds.pop() if len(kinds) == 1 else "", remedy)
    return next(iter(found.values())) if len(found) == 1 else Overgrown(begins[0])


def _in_float32(parsed: parsed_line.ParsedLine, operands: list[ast.expr]) -> str:
    """The statement with these parts of it as float32 numbers; empty where one lies within another."""
    inner = {id(part) for node in operands for part in ast.walk(node) if part is not node}
    if any(id(node) in inner for node in operands):
        return ""
    return parsed.with_parts({node: f"{parsed.operand(node)}.float()" for node in operands})


def _noted(process: Process, role: str, name: str) -> list[Location]:
    rows = [row for row in process.sites.shared_records() if row["role"] == role and (row["name"] or "") == name]
    places = [process.site(row["site"]) for row in rows]
    return [place for place in places if place is not None]


def _taken(parsed: parsed_line.ParsedLine) -> list[tuple[str, list[ast.expr]]]:
    """The squares, powers and exponentials of the statement that have no bound, each with what they are taken of."""
    found: list[tuple[str, list[ast.expr]]] = []
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            if not isinstance(node.left, ast.Constant) and ast.dump(node.left) == ast.dump(node.right):
                found.append((_SQUARE, [node.left, node.right]))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            if not isinstance(node.left, ast.Constant) and not _shrinks(node.right):
                found.append((_SQUARE if _is_two(node.right) else _POWER, [node.left]))
        elif isinstance(node, ast.Call) and (kind := _CALLS.get(parsed_line.name_of(node.func))):
            found += _called(kind, node)
    return found


def _called(kind: str, call: ast.Call) -> list[tuple[str, list[ast.expr]]]:
    """What `torch.exp(x)`, or `x.exp()`, is taken of; nothing of Python's own numbers, and of what is below zero."""
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    if holder is not None and parsed_line.name_of(holder) in _NO_TENSORS:
        return []
    given = [*call.args] if parsed_line.is_function_of_torch(call.func) else [*filter(None, [holder]), *call.args]
    if not given or isinstance(given[0], ast.Constant | ast.Starred):
        return []
    if kind == _POWER:
        if len(given) > 1 and _shrinks(given[1]):
            return []
        kind = _SQUARE if len(given) > 1 and _is_two(given[1]) else _POWER
    elif kind == _EXPONENTIAL and _is_negative(given[0]):
        return []
    return [(kind, given[:1])]


def _is_two(power: ast.expr) -> bool:
    return isinstance(power, ast.Constant) and power.value == 2


def _shrinks(power: ast.expr) -> bool:
    """Whether a power is a constant of one or less."""
    constant = power.value if isinstance(power, ast.Constant) else None
    return isinstance(power, ast.UnaryOp) or (isinstance(constant, int | float) and constant <= 1)


def _is_negative(given: ast.expr) -> bool:
    """Whether a number is written with a minus in front: `-x`, `-0.5 * x ** 2`, `-x / 2`."""
    while isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mult | ast.Div):
        given = given.left
    return isinstance(given, ast.UnaryOp) and isinstance(given.op, ast.USub)
