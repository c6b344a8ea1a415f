"""The line with the difference that a loss is made of, where the script writes the loss out over several lines:
`error = target - value`, `critic = error.pow(2).mean()`, `loss = actor + 0.5 * critic`. And that with the product:
`weighed = ratio * advantage`, `loss = -weighed.mean()`."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.names import names_in
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_EVEN: Final = ("pow", "square", "abs")
"""Functions and methods that make a distance of a difference."""
_REDUCED: Final = ("mean", "sum")
_ELEMENT_BY_ELEMENT: Final = frozenset(
    {"max", "maximum", "min", "minimum", "where", "clamp", "relu", "softplus", "log", "log1p", "cosh", "exp", "tanh"}
) | {"mean", "sum", "backward", "scale", "float", "sqrt", "sigmoid", "logsigmoid"}


def of(process: Process, place: Location | None) -> Location | None:
    """The only such line that the statement at a place is computed from, as far as the lines above are known one by
    one; the place itself where there is none, or several."""
    lines = recorded_text.of_function(process, place) if place else {}
    own = parsed_line.of(place)
    if place is None or own is None or place.line not in lines:
        return place
    search = _Search(lines)
    search.follow(own.statement, place.line)
    found = search.found or (search.subtracted if search.is_plain else set())
    if place.line in found or len(found) != 1:
        return place
    (number,) = found
    return place.at(number, lines[number])


@dataclass(frozen=True)
class Product:
    """The line with a product, and the side that it shares with those in other lines; empty where there are none."""

    place: Location
    shared: str


def of_product(process: Process, place: Location | None) -> Product | None:
    """The only line with a product under a mean or a sum that the statement at a place is computed from, as far as the
    lines above are known one by one. The first of several that multiply by the same, as a clipped surrogate does. A
    loss times its share of the sum is no such product."""
    lines = recorded_text.of_function(process, place) if place else {}
    own = parsed_line.of(place)
    if place is None or own is None or place.line not in lines:
        return None
    found = _products(lines, own.statement, place.line, False, set())
    numbers, shared = {number for number, _ in found}, _shared(lines, found)
    if not found or (len(numbers) > 1 and not shared):
        return None
    number = min(numbers)
    first = place.at(number, lines[number])
    return Product(first, shared)


def _shared(lines: dict[int, str], found: list[tuple[int, ast.BinOp]]) -> str:
    """The name that several products multiply the same by, as it is and bounded: `ratio * a` and `clamp(ratio) * a`."""
    for name in {one.id for _, node in found[:1] for one in (node.left, node.right) if isinstance(one, ast.Name)}:
        others = [(number, _beside(node, name)) for number, node in found]
        behind = [_named(lines, one, number) for number, one in others if one is not None]
        if 1 < len(found) == len(behind) and set.intersection(*behind) - {name}:
            return name
    return ""


def _beside(product: ast.BinOp, name: str) -> ast.expr | None:
    """The other side of a product with this name."""
    sides = (product.left, product.right)
    given = [isinstance(one, ast.Name) and one.id == name for one in sides]
    return sides[given.index(False)] if sum(given) == 1 else None


def _named(lines: dict[int, str], node: ast.expr, number: int) -> set[str]:
    """The names in an expression, and in what a name was given."""
    made = assigned(lines, node.id, number) if isinstance(node, ast.Name) else None
    parts = [node, *([made[1]] if made is not None else [])]
    return set().union(*map(names_in, parts))


def _products(
    lines: dict[int, str], node: ast.AST, number: int, reduced: bool, seen: set[tuple[str, int, bool]]
) -> list[tuple[int, ast.BinOp]]:
    """The products of two things that are no numbers, under a mean or a sum, with the numbers of their lines."""
    found: list[tuple[int, ast.BinOp]] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and reduced and _multiplies(node):
        found.append((number, node))
    if isinstance(node, ast.Call):
        reduced = reduced or parsed_line.name_of(node.func) in _REDUCED
    if isinstance(node, ast.Name | ast.Attribute) and (ast.unparse(node), number, reduced) not in seen:
        seen.add((ast.unparse(node), number, reduced))
        made = assigned(lines, ast.unparse(node), number)
        found += _products(lines, made[1], made[0], reduced, seen) if made is not None else []
    for child in ast.iter_child_nodes(node):
        found += _products(lines, child, number, reduced, seen)
    return found


def _multiplies(product: ast.BinOp) -> bool:
    """Whether neither side is a number, and both are not the same."""
    sides = (product.left, product.right)
    plain = any(isinstance(one, ast.Constant | ast.UnaryOp) and not names_in(one) for one in sides)
    return not plain and ast.unparse(sides[0]) != ast.unparse(sides[1])


def assigned(lines: dict[int, str], name: str, below: int) -> tuple[int, ast.expr] | None:
    """Number and value of the nearest assignment to a name above a line; None where a line between is not known, or
    where the assignment may go on over several."""
    number = below - 1
    while number in lines:
        text = code_of(lines[number]).strip()
        line = parsed_line.parse(text) if text else None
        statement = line.statement if line is not None else None
        if text.startswith(("def ", "async def ", "class ")):
            return None
        if isinstance(statement, ast.Assign) and name in _targets(statement.targets):
            return number, statement.value
        if statement is None and text.startswith(f"{name} ="):
            return None
        number -= 1
    return None


def squeezed(process: Process, place: Location | None, prediction: bool, dimension: int) -> Diff | None:
    """The statement whose only difference is that of what the model says and a target, with a dimension of size 1 taken
    off one of both. None where not exactly one side is the model's call, or a name that a call gave its value."""
    own = own_statement.at(process, place)
    tree = own.parsed.tree if own is not None else ast.Module([], [])
    found = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)]
    if own is None or place is None or len(found) != 1:
        return None
    lines = recorded_text.of_function(process, place)
    models = {row["called_as"] for row in process.models.records() if row["called_as"]}
    calls = {one.line for one in process.locations("training-call") if one.file == place.file}
    sides = (found[0].left, found[0].right)
    said = [_said_by(models, calls, lines, own.line, side) for side in sides]
    if sum(said) != 1:
        return None
    chosen = sides[said.index(prediction)]
    return own.changed(own.parsed.with_parts({chosen: f"{own.parsed.operand(chosen)}.squeeze({dimension})"}))


def with_dimension(process: Process, place: Location | None, dimension: int) -> str:
    """The statement as an example, where it gives a function of its own several parts of what the model says and one
    target, with a dimension of size 1 added to that: without it the parts would meet each other as the target did.
    Empty where that is not so."""
    own = own_statement.at(process, place)
    if own is None or place is None:
        return ""
    lines = recorded_text.of_function(process, place)
    models = {row["called_as"] for row in process.models.records() if row["called_as"]}
    calls = {one.line for one in process.locations("training-call") if one.file == place.file}
    for call in ast.walk(own.parsed.tree):
        if not isinstance(call, ast.Call):
            continue
        given = [*call.args, *(one.value for one in call.keywords)]
        given = [one for one in given if isinstance(one, ast.Name | ast.Attribute | ast.Subscript)]
        targets = [one for one in given if not _said_by(models, calls, lines, own.line, one)]
        if len(targets) == 1 and len(given) > len(("a part", "its target")):
            added = f"{own.parsed.operand(targets[0])}.unsqueeze({dimension})"
            return own.dedented(own.parsed.with_parts({targets[0]: added}))
    return ""


def _said_by(models: set[str], calls: set[int], lines: dict[int, str], number: int, side: ast.expr) -> bool:
    """Whether a side is a call of one of the models, or what such a call, or one at one of these lines, returned."""
    made = assigned(lines, ast.unparse(side), number) if isinstance(side, ast.Name | ast.Attribute) else None
    value = made[1] if made is not None else side
    known = made is not None and made[0] in calls
    return isinstance(value, ast.Call) and (known or ast.unparse(value.func) in models)


def _targets(targets: list[ast.expr]) -> set[str]:
    """What an assignment gives a value: names, attributes, and what has an entry set."""
    found: set[str] = set()
    for one in targets:
        found |= _targets(one.elts) if isinstance(one, ast.Tuple | ast.List) else set()
        found.add(ast.unparse(one.value if isinstance(one, ast.Subscript) else one))
    return found


@dataclass
class _Search:
    lines: dict[int, str]
    found: set[int] = field(default_factory=set)
    subtracted: set[int] = field(default_factory=set)
    """Differences that names are given, whatever is made of them: a quantile's loss takes a maximum."""
    is_plain: bool = True
    """Whether all else is computed element by element: a function of the script's own may compare what it is given."""
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def follow(self, statement: ast.AST, number: int, above: bool = False) -> None:
        """Distances in a statement, and in those that its names are made by. `above`: it makes one side of a
        difference."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and not above:
                self.is_plain &= parsed_line.name_of(node.func) in _ELEMENT_BY_ELEMENT
            operand = _squared(node)
            if operand is not None:
                self._difference(operand, number)
            made = self._made(node, number)
            if made is not None:
                is_difference = isinstance(made[1], ast.BinOp) and _compares(made[1])
                self.subtracted |= {made[0]} if is_difference and not above else set()
                self.follow(made[1], made[0], above or is_difference)

    def _difference(self, operand: ast.expr, number: int) -> None:
        if isinstance(operand, ast.UnaryOp):
            self._difference(operand.operand, number)
        elif isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Sub):
            self.found.add(number)
        elif isinstance(operand, ast.Name | ast.Attribute):
            made = assigned(self.lines, ast.unparse(operand), number)
            if made is not None:
                self._difference(made[1], made[0])

    def _made(self, node: ast.AST, number: int) -> tuple[int, ast.expr] | None:
        if not isinstance(node, ast.Name | ast.Attribute) or (ast.unparse(node), number) in self._seen:
            return None
        self._seen.add((ast.unparse(node), number))
        return assigned(self.lines, ast.unparse(node), number)


def _compares(value: ast.BinOp) -> bool:
    """Whether it is a difference, and of no number: `1 - share` compares nothing with a target."""
    return isinstance(value.op, ast.Sub) and not any(isinstance(one, ast.Constant) for one in (value.left, value.right))


def _squared(node: ast.AST) -> ast.expr | None:
    """What is squared, or taken absolute."""
    if isinstance(node, ast.BinOp):
        squares = isinstance(node.op, ast.Pow) or ast.unparse(node.left) == ast.unparse(node.right)
        return node.left if squares and isinstance(node.op, ast.Pow | ast.Mult) else None
    if not isinstance(node, ast.Call) or parsed_line.name_of(node.func) not in _EVEN:
        return None
    if parsed_line.is_function_of_torch(node.func):
        return node.args[0] if node.args else None
    return node.func.value if isinstance(node.func, ast.Attribute) else None
