"""A term for the balance of experts that is made of counts alone: no gradient goes from it to the gate."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.model.router_collapse import balance_term
from tracelyze.analyzers.rules.model.router_collapse.balance_term import Mistake
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine

_COUNTS: Final = ("one_hot", "bincount", "histc")
_REDUCES: Final = ("sum", "mean", "var", "std")
_SOFTMAX: Final = ("softmax",)
_BALANCES: Final = re.compile(r"balanc|aux|(?:^|_)lb(?:_|$)|loss", re.IGNORECASE)  # functions that return such a term
_NUMBER: Final = re.compile(
    r"(?:^|\.)(?:[nek]|num_?\w*|n_?experts?|experts?|world_size|top_?k|\w*(?:weight|coeff?|alpha|lambda|factor|scale))$",
    re.IGNORECASE,
)
"""What a number of experts or a weight is called."""


def alone(process: Process) -> Mistake | None:
    """The only recorded line that makes a term of the loss of the counts of a function's choices, and of nothing else,
    where no line of that function takes them together with anything that may have a gradient."""
    found: dict[Location, str] = {}
    for counted in process.locations("counts"):
        texts = recorded_text.of_function(process, counted)
        lines = {at: one for at, text in texts.items() if (one := parsed_line.parse(text.strip())) is not None}
        made = {at: one for at, one in lines.items() if _value(one) is not None}
        counts = {name for one in made.values() if (name := _counts(one))}
        others = [one for at, one in lines.items() if at not in made]
        if any(_mixes(one.tree, counts) for one in [*made.values(), *others]):
            continue
        gates = {_target(one) for one in made.values() if any(one.calls(name) for name in _SOFTMAX)}
        for at, one in made.items():
            returned = isinstance(one.statement, ast.Return) and _BALANCES.search(counted.function) is not None
            value = _value(one)
            if value and _reduces(value, counts) and (returned or _is_of_the_loss(process, _target(one))):
                found[Location(counted.file, at, counted.function, one.text)] = _mended(one, counts, gates - {""})
    place = script_lines.only_of(list(found))
    if place is None:
        return None
    fix = (
        f"Multiply the counts in line {place.line} by the gate's mean probabilities: counts of chosen experts have no "
        "gradient, so a term that is made of them alone changes nothing in the gate, whatever its weight."
    )
    return Mistake(place, fix, found[place])


def _value(line: ParsedLine) -> ast.expr | None:
    """What it assigns or returns."""
    return line.statement.value if isinstance(line.statement, ast.Assign | ast.Return) else None


def _target(line: ParsedLine) -> str:
    """The name that it gives, without what holds that; empty where it gives several."""
    made = line.statement
    target = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def _counts(line: ParsedLine) -> str:
    """The name that a statement gives to counts of choices, or to their shares: `F.one_hot(pick, n).float().mean(0)`,
    which numbers may divide."""
    node = _value(line) if isinstance(line.statement, ast.Assign) else None
    while True:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            node = node.left
        elif isinstance(node, ast.Call) and name_of(node.func) in _COUNTS:
            return _target(line)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return ""


def _mixes(tree: ast.AST, counts: Collection[str]) -> bool:
    """Whether it takes counts together with something else than numbers: `share * probabilities`, `dot(share, p)`."""
    for node in ast.walk(tree):
        together = isinstance(node, ast.BinOp) or (isinstance(node, ast.Call) and _has(list(node.args), counts))
        if together and _has([node], counts) and _foreign(node, counts):
            return True
    return False


def _has(nodes: list[ast.AST] | list[ast.expr], counts: Collection[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in counts for node in nodes for one in ast.walk(node))


def _foreign(node: ast.AST, counts: Collection[str]) -> bool:
    """Whether anything in it is neither counts nor a number, by its name."""
    if isinstance(node, ast.Name | ast.Attribute):
        said = ast.unparse(node)
        return said not in counts and _NUMBER.search(said) is None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = [*node.args, *(one.value for one in node.keywords)]
        inner += [] if parsed_line.is_function_of_torch(node.func) else [node.func.value]
        return any(_foreign(one, counts) for one in inner)
    return any(_foreign(one, counts) for one in ast.iter_child_nodes(node))


def _reduces(node: ast.expr, counts: Collection[str]) -> bool:
    """Whether it is one number made of counts that are multiplied by each other, or of their spread."""
    if not _has([node], counts) or _foreign(node, counts):
        return False
    reducing = [one for one in ast.walk(node) if isinstance(one, ast.Call) and name_of(one.func) in _REDUCES]
    spread = any(name_of(one.func) in ("var", "std") for one in reducing)
    return len(reducing) == 1 and (spread or len(_products(node, counts)) == 1)


def _products(node: ast.expr, counts: Collection[str]) -> list[ast.expr]:
    """`share * share`, `share ** 2`, `share.pow(2)`, `share.square()`."""
    found: list[ast.expr] = []
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult | ast.Pow) and _has([one.left], counts):
            bare = not any(isinstance(inner, ast.Call) and name_of(inner.func) in _REDUCES for inner in ast.walk(one))
            found += [one] if bare and (isinstance(one.op, ast.Pow) or _has([one.right], counts)) else []
        elif isinstance(one, ast.Call) and name_of(one.func) in ("pow", "square"):
            found += [one]
    return found


def _is_of_the_loss(process: Process, name: str) -> bool:
    """Whether a recorded line of a loss takes what goes by this name, or hands it back."""
    if not name:
        return False
    named = re.compile(rf"\b{re.escape(name)}\b")
    lines = (code_of(one.source).strip() for one in recorded_text.matching(process, named))
    return any(balance_term.is_of_a_loss(line) and not re.match(rf"(?:\w+\.)*{name}\s*=", line) for line in lines)


def _mended(line: ParsedLine, counts: Collection[str], gates: set[str]) -> str:
    """The statement with the mean probabilities as the second factor; empty where either is not known."""
    value = _value(line)
    products = _products(value, counts) if value else []
    if len(products) != 1 or len(gates) != 1:
        return ""
    (product,), (gate,) = products, gates
    first: ast.expr | None = product.left if isinstance(product, ast.BinOp) else None
    if isinstance(product, ast.Call) and isinstance(product.func, ast.Attribute):
        first = product.func.value
    if not isinstance(first, ast.Name):
        return ""
    mean = f"{first.id} * {gate}.flatten(0, -2).mean(0)"
    bare = isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)
    return line.with_parts({product: mean if bare else f"({mean})"})
