"""The line that can have put NaN or Inf into the input: a division, a logarithm or a root where data are prepared."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import edits, script_lines
from tracelyze.analyzers.evidence.editing import own_statement, parsed_line
from tracelyze.analyzers.evidence.editing.parsed_line import name_of
from tracelyze.analyzers.evidence.editing.remade import finite

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.own_statement import OwnStatement
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_DIVIDES: Final = re.compile(r"[^/]/[^/]|\bstd\s*\(")
_REPORTS: Final = re.compile(r"\s*(?:print|log\w*\.\w+|logging\.\w+|writer\.\w+|wandb\.\w+)\s*\(")
_QUIET: Final = re.compile(r"\s*with\s+(?:np|numpy)\.errstate\(.*[\"']ignore[\"']")
_BOUNDED: Final = frozenset(  # what returns no 0, or is asked to leave none
    {
        "max",
        "maximum",
        "clip",
        "clamp",
        "clamp_min",
        "where",
        "nan_to_num",
        "len",
        "float",
        "exp",
        "replace",
        "masked_fill",
    }
)
_OPERATIONS: Final = ("log", "log2", "log10", "sqrt", "divide", "true_divide", "reciprocal", "pct_change")
_SMALL: Final = re.compile(r"\beps(?:ilon)?\b|\btiny\b", re.IGNORECASE)
_DEPTH: Final = 3  # names that a name is made of
_SPREADS: Final = "Divide by no standard deviation that may be 0: add an epsilon, or take the statistics of all data."
_SPREADS_CODE: Final = (
    "scaled = (values - mean) / (std + 1e-6)  # finite where all values are equal, and their deviation is 0"
)


def line(process: Process) -> Location | None:
    """The only line that divides between the loop's `for` and its backward; else the only function's that divides, or
    takes a logarithm or a root, of what nothing keeps away from 0, and which is neither a module's forward, the loop's
    nor that of an evaluation. Of several the only one under which NumPy's warnings are off: others would have warned.
    """
    lines = [one for one in process.locations("singular") if _DIVIDES.search(one.source)]
    loop, end = process.location("loop"), process.location("backward")
    home = {(one.file, one.function) for role in ("backward", "evaluation") for one in process.locations(role)}
    if loop is not None and end is not None:
        there = [one for one in lines if (one.file, one.function) == (loop.file, loop.function)]
        inside = [one for one in there if loop.line < one.line < end.line]
        if inside:
            return script_lines.only_of(inside)
        home.add((loop.file, loop.function))
    lines = [*lines, *process.locations("singular-array")]
    lines = [one for one in lines if one.function not in (script_lines.MODULE, "forward")]
    lines = [one for one in lines if (one.file, one.function) not in home and not _REPORTS.match(one.source)]
    opened = [one for one in lines if not _is_bounded(process, one)]
    return script_lines.only_of(opened) or script_lines.only_of([one for one in opened if _is_quiet(process, one)])


def remedy(process: Process, place: Location | None) -> tuple[str, str]:
    """What to do about such a line, and the line with it."""
    own = own_statement.at(process, place)
    divisor = _only_divisor(own) if own is not None else None
    if place is None or own is None or divisor is None or "std" in own.text:
        return _SPREADS, finite.divided(process, place) or _SPREADS_CODE
    held = own.parsed.text_of(divisor)
    fix = (
        f"Line {place.line} divides by {held}: say what it is to be where that is 0, or take a measure without a ratio."
    )
    return fix, _chosen(process, place, own, divisor) or finite.divided(process, place) or _SPREADS_CODE


def _chosen(process: Process, place: Location, own: OwnStatement, divisor: ast.expr) -> str:
    """An assigned quotient with 0 where the divisor is; of an array of NumPy's, or of a tensor."""
    made = own.parsed.statement
    if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.BinOp) or made.value.right is not divisor:
        return ""
    texts = edits.recorded_lines(process, place).values()
    held, whole = own.parsed.text_of(divisor), own.parsed.text_of(made.value)
    arrays = any(re.search(r"\b(?:np|numpy)\.", text) for text in texts)
    chosen = f"np.where({held} != 0, {whole}, 0.0)" if arrays else f"torch.where({held} != 0, {whole}, 0.0)"
    return own.dedented(own.parsed.with_parts({made.value: chosen}))


def _only_divisor(own: OwnStatement) -> ast.expr | None:
    found = [
        one.right for one in ast.walk(own.parsed.tree) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)
    ]
    return found[0] if len(found) == 1 and _is_name(found[0]) else None


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


def _is_bounded(process: Process, place: Location) -> bool:
    """Whether all that the line divides by, or takes a logarithm or a root of, is kept away from 0."""
    own = own_statement.at(process, place)
    if own is None:
        return False
    nodes = list(ast.walk(own.parsed.tree))
    taken = [one.right for one in nodes if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
    for call in own.parsed.calls(*_OPERATIONS):
        taken += call.args[-1:] or ([call.func.value] if isinstance(call.func, ast.Attribute) else [])
    known = _assigned(process, place)
    return bool(taken) and all(_is_away(one, known) for one in taken) and not own.parsed.calls("pct_change")


def _assigned(process: Process, place: Location) -> dict[str, ast.expr]:
    """What the function of a place gives its names, as far as that was recorded, and each a single time."""
    found: dict[str, list[ast.expr]] = {}
    for text in edits.lines_of_function(process, place).values():
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
    return name_of(node).isupper() or name_of(node) == "pi"


def _is_small(node: ast.expr) -> bool:
    """Whether it is a number, or named as an epsilon, that is added."""
    return bool(isinstance(node, ast.Constant) and node.value) or bool(_SMALL.search(ast.unparse(node)))


def _is_quiet(process: Process, place: Location) -> bool:
    """Whether the block that the line stands in switches NumPy's warnings off."""
    lines = edits.recorded_lines(process, place)
    depth = _depth(lines.get(place.line, ""))
    for at in range(place.line - 1, 0, -1):
        text = lines.get(at, "")
        if at not in lines or (text.strip() and _depth(text) < depth):
            return _QUIET.match(text) is not None
    return False


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip())
