"""The line that is to leave each row's prompt out of the loss, where the prompt counts all the same."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import ParsedLine

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

IGNORED: Final = -100  # the default of torch, `ignore_index`
_PADDING: Final = re.compile(r"pad|fill|long|max|width|size|block|shape|lack", re.IGNORECASE)  # left of a shorter text
_LONGEST: Final = 50  # characters that a sentence can quote
_WHY: Final = (
    " Line {line} is to leave out each row's first {bound} labels, and these count all the same: that number is 0 or "
    "too small, or the loss is not given what the line changes."
)
_FIX: Final = "Print {bound} in line {line} for one row, and make it reach the end of the prompt.{tokens}"
_TOKENS: Final = (
    " A marker that is tokenized by itself has other ids than within a row if the tokenizer adds begin and end symbols "
    "(add_special_tokens=False leaves them out) or if a space belongs to a token."
)
_STOPS: Final = 'assert {bound} > 0, "the end of the prompt was not found"  # above line {line}'
_MARKER: Final = 'marker_ids = tokenizer(marker, add_special_tokens=False)["input_ids"]  # as they stand within a row'


def line(process: Process) -> tuple[Location, str] | None:
    """The only line that gives -100 to the labels from the start of a row up to some position, and that position as
    the line writes it; None where it may be padding on the left."""
    found = [(place, bound) for place in process.locations("ignored") if (bound := _bound(process, place))]
    place = script_lines.only_of([place for place, _ in found])
    return next((one for one in found if one[0] is place), None)


def remedy(process: Process, place: Location, bound: str) -> tuple[str, str, str]:
    """Why the prompt may count although the line is to leave it out, what to do about it, and an example."""
    told = {"line": place.line, "bound": bound}
    tokens = any("tok" in str(row["excerpt"] or row["source"] or "") for row in process.sites.records())
    code = [_MARKER] * tokens + [_STOPS.format(**told)]
    return _WHY.format(**told), _FIX.format(tokens=_TOKENS * tokens, **told), "\n".join(code)


def _bound(process: Process, place: Location) -> str | None:
    """Up to where a line ignores: `row[:n] = -100`, `labels[:, :n] = -100`, `[-100] * n + ids[n:]`."""
    own = own_statement.at(process, place)
    if own is None:
        return None
    bounds = [_of_slice(own.parsed), *map(_of_list, ast.walk(own.parsed.tree))]
    known = [one for one in bounds if one is not None and not isinstance(one, ast.Constant | ast.UnaryOp)]
    text = " ".join(own.parsed.text_of(known[0]).split()) if len(known) == 1 else ""
    return text if text and len(text) <= _LONGEST and not _PADDING.search(text) else None


def _of_slice(parsed: ParsedLine) -> ast.expr | None:
    """The upper end of the slice from a row's start to which a statement assigns the number."""
    statement = parsed.statement
    target = statement.targets[0] if isinstance(statement, ast.Assign) and _is_ignored(statement.value) else None
    if not isinstance(target, ast.Subscript):
        return None
    last = target.slice.elts[-1] if isinstance(target.slice, ast.Tuple) else target.slice
    from_start = isinstance(last, ast.Slice) and (last.lower is None or _number(last.lower) == 0)
    return last.upper if from_start and isinstance(last, ast.Slice) else None


def _of_list(node: ast.AST) -> ast.expr | None:
    """How many of the number stand in front of something: n of `[-100] * n + ids[n:]`."""
    front = node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) else None
    if not isinstance(front, ast.BinOp) or not isinstance(front.op, ast.Mult) or not isinstance(front.left, ast.List):
        return None
    return front.right if len(front.left.elts) == 1 and _is_ignored(front.left.elts[0]) else None


def _is_ignored(node: ast.expr) -> bool:
    return _number(node) == IGNORED


def _number(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
