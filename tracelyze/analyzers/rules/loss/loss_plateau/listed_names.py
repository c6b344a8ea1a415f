"""A line that lists files by names as text, or in no order, beside labels or a table that are read from elsewhere."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

_LISTS: Final = ("listdir", "scandir", "glob", "iglob", "rglob", "iterdir")
_SORTED: Final = re.compile(r"\.sort\s*\(|\bsorted\s*\(|\bnatsort")
_OTHERS: Final = re.compile(
    r"\bcsv\.|\bread_(?:csv|table|json|excel|parquet)\b|\bjson\.loads?\b|\bloadtxt\b|\bgenfromtxt\b|\breadlines\b"
    r"|\blabels?\.(?:npy|txt|pt|csv|json)\b"
)
_NUMBER: Final = "key=lambda name: int(''.join(filter(str.isdigit, str(name))))"


@dataclass(frozen=True)
class Listed:
    """`ordered`: by their names as text; else in the order that the file system gives."""

    place: Location
    ordered: bool
    example: str

    def said(self) -> str:
        """What the script's text shows, and what of it is not known."""
        line = self.place.line
        if self.ordered:
            return (
                f" Line {line} puts files in the order of their names as text, where 10 comes before 2: unless their "
                "numbers are padded with zeros, what is read from elsewhere in the order of the numbers belongs to "
                "other files."
            )
        return (
            f" Line {line} lists files in the order of the file system, which is none: what is read from elsewhere and "
            "paired with them by position belongs to other files."
        )


def of(process: Process) -> Listed | None:
    """The only line of the script that lists files, in a function that also reads labels or a table from elsewhere.
    That it is wrong is known only beside evidence that nothing is learned."""
    places = {one.file_line: one for one in process.locations("listing")}
    if len(places) != 1:
        return None
    (place,) = places.values()
    own = own_statement.at(process, place)
    lines = recorded_text.of_function(process, place)
    if own is None or not any(_OTHERS.search(text) for text in lines.values()):
        return None
    if any(_sorts_by_key(text) for number, text in lines.items() if number >= own.line):
        return None
    below = "\n".join(text for number, text in sorted(lines.items()) if number >= own.line)
    ordered = _SORTED.search(below) is not None
    return Listed(place, ordered, _example(own, ordered))


def _sorts_by_key(text: str) -> bool:
    return bool(re.search(r"\bkey\s*=|\bnatsort", text))


def _example(own: OwnStatement, ordered: bool) -> str:
    """The script's own statement, with files in the order of the numbers in their names; empty where not known."""
    call = own.only_call("sorted")
    if ordered and call is not None:
        return own.dedented(own.with_argument(("sorted",), "key", _NUMBER.partition("=")[2]))
    lists = own.only_call(*_LISTS)
    whole: ast.expr | None = getattr(own.parsed.statement, "value", None)
    if ordered or lists is None or lists is not whole:
        return ""
    text = f"sorted({own.parsed.text_of(lists)}, {_NUMBER})"
    return own.dedented(own.parsed.with_parts({lists: text}))
