"""The script's own statement at a place, over as many lines as it stands on, and edits that leave all of it as it is
but one thing: one argument of one call, a condition before it, its target.

Whoever applies such an edit keeps the name that is assigned, the arguments and the qualified names. None where the
statement is not known as a whole.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_LONGEST: Final = 12  # lines of one statement; no more than a few stand together in what is recorded
_CLOSED: Final = "\n)"
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS: Final = (ast.For, ast.While, ast.If, ast.With, ast.AsyncFor, ast.AsyncWith, *_DEFINITIONS)


@dataclass(frozen=True)
class OwnStatement:
    """A statement with its indentation, and where it begins."""

    file: str
    line: int
    indent: str
    parsed: ParsedLine
    stands: bool = True
    """Whether it is known as it stands in the file; else examples may show it, and no edit is made of it."""
    begun: bool = False
    """Whether more arguments of its call follow in lines that were not recorded: `text` closes it behind the others."""

    @property
    def text(self) -> str:
        """As it stands in the file, without the indentation of its first line."""
        return self.parsed.text

    @property
    def is_whole(self) -> bool:
        """Whether it is no head of a block, which says nothing without what stands in it."""
        return not isinstance(self.parsed.statement, _BLOCKS)

    def only_call(self, *names: str) -> ast.Call | None:
        """Its only call of something with one of these names."""
        calls = self.parsed.calls(*names)
        return calls[0] if len(calls) == 1 else None

    def with_argument(self, names: tuple[str, ...], argument: str, value: str, position: int | None = None) -> str:
        """Its text with one argument of its only call of one of `names` set; empty where that is not known."""
        call = self.only_call(*names)
        return (call and self.parsed.with_argument(call, argument, value, position)) or ""

    def dedented(self, text: str) -> str:
        """A text of the statement for an example: each of its lines without the indentation of the first."""
        return "\n".join(line.removeprefix(self.indent) for line in text.split("\n"))

    def changed(self, text: str | None) -> Diff | None:
        """The edit that leaves this text in its place."""
        if not self.stands or not text or text == self.text:
            return None
        before, after = (one.removesuffix(_CLOSED) if self.begun else one for one in (self.text, text))
        return Diff(self.file, self.line, self._lines(before), self._lines(after))

    def under(self, head: str) -> Diff | None:
        """The edit that puts the statement as it is into a block."""
        if not self.stands or not self.is_whole or self.begun:
            return None
        inside = [f"    {line}" for line in self._lines(self.text)]
        return Diff(self.file, self.line, self._lines(self.text), [self.indent + head, *inside])

    def preceded_by(self, line: str) -> Diff | None:
        """The edit that puts another statement in front of it, of the head of a block as well."""
        if not self.stands or self.begun or isinstance(self.parsed.statement, _DEFINITIONS):
            return None  # decorators may stand above a definition
        return Diff(self.file, self.line, [], [self.indent + line])

    def _lines(self, text: str) -> list[str]:
        return (self.indent + text).split("\n")


def at(process: Process, place: Location | None) -> OwnStatement | None:
    """The statement that stands at a place or goes on there."""
    lines = recorded_text.around(process, place) if place else {}
    if place is None or not place.source.strip():
        return None
    if place.line not in lines:
        parsed = parsed_line.parse(place.source.strip())
        return OwnStatement(place.file, place.line, "", parsed, stands=False) if parsed is not None else None
    if lines[place.line].strip() != place.source.strip():
        return None
    for first in range(place.line, place.line - _LONGEST, -1):
        if first not in lines:
            return None
        found = _beginning(place, lines, first)
        if found is not None:
            return found
    return None


def begun_at(process: Process, place: Location | None) -> OwnStatement | None:
    """The statement that begins at a place with a call, of which the last arguments were not recorded."""
    lines = recorded_text.around(process, place) if place else {}
    if place is None or lines.get(place.line, "").strip() != place.source.strip() or _goes_on_above(lines, place.line):
        return None
    last = place.line
    while last + 1 in lines and last - place.line < _LONGEST:
        last += 1
    while last > place.line and not code_of(lines[last]).endswith(","):
        last -= 1  # what it says may go on
    text = lines[place.line].lstrip()
    indent = lines[place.line][: len(lines[place.line]) - len(text)]
    text = "\n".join([text, *(lines[at] for at in range(place.line + 1, last + 1))])
    parsed = parsed_line.parse(text + _CLOSED)
    return OwnStatement(place.file, place.line, indent, parsed, begun=True) if parsed is not None else None


def _beginning(place: Location, lines: dict[int, str], first: int) -> OwnStatement | None:
    """The statement that begins on line `first` and reaches the place; None where none does."""
    text = lines[first].lstrip()
    indent = lines[first][: len(lines[first]) - len(text)]
    for last in range(first, first + _LONGEST):
        parsed = parsed_line.parse(text.rstrip()) if text and not text.startswith("#") else None
        if parsed is not None and not _goes_on_above(lines, first):
            return OwnStatement(place.file, first, indent, parsed) if last >= place.line else None
        if last + 1 not in lines:
            return None
        text = f"{text}\n{lines[last + 1]}"
    return None


def _goes_on_above(lines: dict[int, str], first: int) -> bool:
    """Whether the line above leaves a bracket open, or ends in a comma: then no statement begins here."""
    above = code_of(lines.get(first - 1, ""))
    return above.endswith(("(", "[", "{", ",", "\\"))
