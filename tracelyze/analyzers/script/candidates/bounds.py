"""Whether what a line divides by, or takes a logarithm or a root of, is kept away from 0, as far as its text tells."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_BOUNDED: Final = frozenset({  # what returns no 0, or is asked to leave none
    "max", "maximum", "clip", "clamp", "clamp_min", "where", "nan_to_num", "len", "float", "exp", "replace",
    "masked_fill",
})  # fmt: skip
_OPERATIONS: Final = ("log", "log2", "log10", "sqrt", "divide", "true_divide", "reciprocal", "pct_change")
_SMALL: Final = re.compile(r"\beps(?:ilon)?\b|\btiny\b", re.IGNORECASE)
_SETTINGS: Final = re.compile(r"t|tau|temp|temperature|\w*(?:size|dim|heads|width|steps|window)|(?:n|num)_\w+")
_HOLDERS: Final = frozenset({"self", "cfg", "config", "conf", "args", "opt", "opts", "hp", "hparams", "options"})
_SPREADS: Final = frozenset({"std", "nanstd", "norm", "sum", "max", "amax", "ptp"})
"""What may be 0 of a sample: of one whose values are all equal, or all 0."""
_DEPTH: Final = 3  # names that a name is made of


def is_bounded(process: Process, place: Location) -> bool:
    """Whether a line of the script keeps what it divides by, or takes logarithms and roots of, away from 0. A division
    by a setting, such as a temperature, counts as one by what is no 0."""
    own = own_statement.at(process, place)
    if own is None:
        return False
    nodes = list(ast.walk(own.parsed.tree))
    taken = [one.right for one in nodes if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
    for call in own.parsed.calls(*_OPERATIONS):
        taken += call.args[-1:] or ([call.func.value] if isinstance(call.func, ast.Attribute) else [])
    known = _assigned(process, place)
    return bool(taken) and all(_is_away(one, known) for one in taken) and not own.parsed.calls("pct_change")


def spread_of_each_sample(process: Process, place: Location) -> str:
    """The function by which a line takes what it divides each sample by: `std` of `x / x.std(axis=1, keepdims=True)`.
    Empty where it divides by nothing of that kind."""
    own = own_statement.at(process, place)
    if own is None:
        return ""
    known = _assigned(process, place)
    nodes = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
    by = [known.get(one.right.id, one.right) if isinstance(one.right, ast.Name) else one.right for one in nodes]
    alone = place.function == "__getitem__" and place.file_function in process.functions("dataset")
    found = [
        name_of(one.func)
        for one in by
        if isinstance(one, ast.Call) and (_keeps_samples_apart(one) or (alone and _is_of_own(one, known)))
    ]
    return found[0] if len(found) == 1 else ""


def _is_of_own(call: ast.Call, known: dict[str, ast.expr]) -> bool:
    """Whether this is the spread of all values, as `x.std()`, of an `x` that the function itself has made."""
    held = call.func.value if isinstance(call.func, ast.Attribute) and not call.args and not call.keywords else None
    made = known.get(held.id) if isinstance(held, ast.Name) else None
    read = made is not None and any(isinstance(one, ast.Subscript | ast.Call) for one in ast.walk(made))
    return read and name_of(call.func) in _SPREADS


def _keeps_samples_apart(call: ast.Call) -> bool:
    given = {one.arg: ast.unparse(one.value) for one in call.keywords if one.arg}
    kept = given.get("keepdim", given.get("keepdims")) == "True"
    along = given.get("dim", given.get("axis"))
    if along is None:
        along = next((text for one in call.args if re.fullmatch(r"-?\d|\([\d, -]+\)", text := ast.unparse(one))), None)
    return kept and name_of(call.func) in _SPREADS and along is not None and "0" not in along


def _assigned(process: Process, place: Location) -> dict[str, ast.expr]:
    """What the function of a place gives its names, as far as that was recorded, and each a single time."""
    found: dict[str, list[ast.expr]] = {}
    for text in recorded_text.of_function(process, place).values():
        parsed = parsed_line.parse(text.strip())
        made = parsed.statement if parsed is not None else None
        if isinstance(made, ast.Assign) and len(made.targets) == 1 and isinstance(made.targets[0], ast.Name):
            found.setdefault(made.targets[0].id, []).append(made.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _is_away(node: ast.expr, known: dict[str, ast.expr], depth: int = _DEPTH) -> bool:
    """Whether an expression is kept away from 0."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.Call):
        return name_of(node.func) in _BOUNDED
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return any(_is_small(one) for one in (node.left, node.right))
    if isinstance(node, ast.BinOp):
        together = isinstance(node.op, ast.Mult | ast.Div | ast.Pow)
        return together and all(_is_away(one, known, depth) for one in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return _is_away(node.operand, known, depth)
    if isinstance(node, ast.Name) and node.id in known and depth:
        return _is_away(known[node.id], known, depth - 1)
    return _is_setting(node)


def _is_setting(node: ast.expr) -> bool:
    """Whether it is named as a constant, or as a setting of the object or of the program."""
    if isinstance(node, ast.Attribute) and name_of(node.value) in _HOLDERS:
        return _SETTINGS.fullmatch(node.attr) is not None
    return name_of(node).isupper() or name_of(node) == "pi"


def _is_small(node: ast.expr) -> bool:
    """Whether it is a number, or named as an epsilon, that is added."""
    return bool(isinstance(node, ast.Constant) and node.value) or bool(_SMALL.search(ast.unparse(node)))
