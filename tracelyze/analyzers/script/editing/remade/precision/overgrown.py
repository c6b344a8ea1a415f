"""The line in a forward at which numbers grow beyond what float16 holds: its only square, power, exponential or product
of two outputs, where the script's text has one; else where the forward begins."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.loss import broken_modules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SQUARE, _POWER, _EXPONENTIAL, _PRODUCT = "square", "power", "exponential", "matrix product"
_POWER_OF_TWO: Final = "power of two"
_CALLS: Final = {
    "square": _SQUARE,
    "pow": _POWER,
    "float_power": _POWER,
    "exp": _EXPONENTIAL,
    "exp2": _POWER_OF_TWO,
    "expm1": _EXPONENTIAL,
    "sinh": _EXPONENTIAL,
    "cosh": _EXPONENTIAL,
}
_HOLDS: Final = {
    _SQUARE: ", which float16 holds of numbers up to 255",
    _EXPONENTIAL: ", which float16 holds of numbers up to 11",
    _POWER_OF_TWO: ", which float16 holds up to an exponent of 15",
    _POWER: "",
}
_PRODUCTS: Final = ("matmul", "mm", "bmm")
_BOUNDS: Final = re.compile(r"\b(?:softmax|sigmoid|tanh|normalize|one_hot|dropout)\(")
_NO_TENSORS: Final = ("math", "np", "numpy")


@dataclass(frozen=True)
class Overgrown:
    """`line`: where numbers outgrow float16, or else where the forward begins that they do so in."""

    line: Location
    kind: str = ""
    """What is taken in that line; empty where it takes several, and where no line is known to be the one."""
    remedy: str = ""
    """The statement with float32 numbers for it to be taken of."""
    where: str = " there"
    """Behind the number of the line: in the forward of the module that was named, or in the one that calls it."""

    def said(self) -> str:
        """A sentence on what is taken in that line; empty where that is not known."""
        article = "an" if self.kind == _EXPONENTIAL else "a"
        held = _HOLDS.get(self.kind, "")
        return f" Line {self.line.line}{self.where} takes {article} {self.kind}{held}." if self.kind else ""


def within(process: Process, root: dict[str, Any]) -> Overgrown | None:
    """What is known of the forward of a module (a row of the table activations), if it is the script's own."""
    name = root["module"] or ""
    begins = _noted(process, "broken-forward", name)
    if not begins:
        return None
    where = ", in the forward that calls it," if broken_modules.was_given(root) else " there"
    found: dict[int, Overgrown] = {}
    for place in _noted(process, "powers", name) if root["dtype"] == "float16" else ():
        own = own_statement.at(process, place)
        if own is None:
            continue
        taken, product = _taken(own.parsed), _product(process, own.parsed, place)
        if product and taken:
            found[own.line] = Overgrown(place)
        elif product:
            region = f"with torch.autocast({own.parsed.operand(product[0])}.device.type, enabled=False):"
            changed = _in_float32(own.parsed, product) if own.is_whole else ""
            remedy = f"{region}\n    {own.dedented(changed)}" if changed and "\n" not in changed else ""
            found[own.line] = Overgrown(place, _PRODUCT, remedy, where)
        elif taken:
            kinds = {kind for kind, _ in taken}
            operands = [node for _, given in taken for node in given]
            remedy = own.dedented(_in_float32(own.parsed, operands)) if own.is_whole else ""
            found[own.line] = Overgrown(place, kinds.pop() if len(kinds) == 1 else "", remedy, where)
    return next(iter(found.values())) if len(found) == 1 else Overgrown(begins[0])


def _product(process: Process, parsed: parsed_line.ParsedLine, place: Location) -> list[ast.expr]:
    """The factors of the statement's only matrix product, of two outputs; else none. Weights, and shares that add up to
    one, make numbers no larger."""
    pairs: list[list[ast.expr]] = []
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            pairs.append([node.left, node.right])
        elif isinstance(node, ast.Call) and parsed_line.name_of(node.func) in _PRODUCTS:
            method = not parsed_line.is_function_of_torch(node.func) and isinstance(node.func, ast.Attribute)
            pairs.append([*([node.func.value] if method and isinstance(node.func, ast.Attribute) else []), *node.args])
    if len(pairs) != 1 or len(pairs[0]) != 2:
        return []
    lines = recorded_text.of_function(process, place)
    return [] if any(_is_bounded(one, lines) for one in pairs[0]) else pairs[0]


def _is_bounded(factor: ast.expr, lines: Mapping[int, str]) -> bool:
    """Whether it is the module's own weight, a number, or what a softmax or sigmoid made, as the lines above say."""
    text = ast.unparse(factor)
    if isinstance(factor, ast.Constant) or text.startswith("self.") or _BOUNDS.search(text):
        return True
    made = re.compile(rf"\s*{re.escape(text)}\s*=(?!=).*{_BOUNDS.pattern}")
    return isinstance(factor, ast.Name) and any(made.match(line) for line in lines.values())


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
    elif kind in (_EXPONENTIAL, _POWER_OF_TWO) and _is_negative(given[0]):
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
