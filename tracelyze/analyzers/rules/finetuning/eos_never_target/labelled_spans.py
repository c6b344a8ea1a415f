"""Labels that begin as ignored everywhere, and into which spans of the ids are copied: what counts is what is copied.

Nothing is masked there, so that an example which masks less would leave the labels as they are.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_ALL_IGNORED: Final = re.compile(
    r"=\s*(?:\[\s*(?:-100|\w*ignore\w*)\s*\]\s*\*"
    r"|(?:\w+\.)*(?:full|full_like)\s*\(.*,\s*(?:fill_value\s*=\s*)?(?:-100|\w*ignore\w*)\s*[,)])",
    re.IGNORECASE,
)
_OPENS: Final = re.compile(r"\]\s*=(?!=)")


class Copied(NamedTuple):
    """The line that copies a span of the ids into the labels, and the line with an end one position later."""

    place: Location
    later: str


def begin_ignored(process: Process) -> bool:
    """Whether all recorded lines that make labels make them ignored everywhere, for others to fill in."""
    made = process.locations("labels")
    return bool(made) and all(_ALL_IGNORED.search(one.source) for one in made)


def only(process: Process) -> Copied | None:
    """The only line, in the functions that make such labels, that copies a span with an end of its own into them."""
    found: dict[tuple[str, int], Copied] = {}
    for made in process.locations("labels"):
        name = made.source.split("=")[0].split(":")[0].strip()
        for number, text in recorded_text.of_function(process, made).items():
            copied = _copied(text, name) if _OPENS.search(text) else ""
            if copied:
                place = made.at(number, text)
                found[place.file_line] = Copied(place, copied)
    return next(iter(found.values())) if len(found) == 1 else None


def _copied(text: str, labels: str) -> str:
    """`labels[a:b] = ids[a:b]` as `labels[a:b + 1] = ids[a:b + 1]`, where both spans are the same; else empty."""
    line = parsed_line.parse(text.strip())
    statement = line.statement if line is not None else None
    if line is None or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Subscript) or not isinstance(value, ast.Subscript):
        return ""
    ends = [_end(target.slice), _end(value.slice)]
    same = ast.unparse(target.slice) == ast.unparse(value.slice)
    if not same or ends[0] is None or ends[1] is None or ast.unparse(target.value) != labels:
        return ""
    return line.with_parts({end: _one_more(end) for end in ends if end is not None}).strip()


def _end(part: ast.expr) -> ast.expr | None:
    """Where a span ends; None where it has no beginning or no end, a step, or counts from behind."""
    part = part.elts[-1] if isinstance(part, ast.Tuple) and part.elts else part
    if not isinstance(part, ast.Slice) or part.lower is None or part.step is not None:
        return None
    return None if isinstance(part.upper, (ast.Constant, ast.UnaryOp)) else part.upper


def _one_more(end: ast.expr) -> str:
    less = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Sub) and ast.unparse(end.right) == "1"
    if isinstance(end, ast.BinOp) and less:
        return ast.unparse(end.left)
    return (
        f"{ast.unparse(end)} + 1"
        if isinstance(end, (ast.Name, ast.Attribute, ast.Call))
        else f"({ast.unparse(end)}) + 1"
    )
