"""The text of a file with its brackets, strings and heads of functions found, as far as it takes to see who gives a
name a value.

By regular expressions: nothing is parsed or compiled. A parser prints warnings of the program's text a second time,
and up to Python 3.12 two threads cannot parse at once (instructions.py). Text that is no Python gives less, no error.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

HIDDEN: Final = "~"
"""Stands for each character of a string that is more than a plain word."""
_TOKEN: Final = re.compile(
    r"(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comment>\#[^\n]*+)"
    r"|(?P<string>\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''"
    r"|\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')",
    re.DOTALL,
)
_BEGINS: Final = re.compile(r"^(?:def|class|import|from|@)\b", re.MULTILINE)
_CALLED: Final = re.compile(r"\b(?P<name>[A-Za-z_]\w*+)[ \t]*+\(")
_HEAD: Final = re.compile(r"^(?P<indent>[ \t]*+)(?:async[ \t]+)?(?P<kind>def|class)[ \t]+(?P<name>\w+)", re.MULTILINE)
_SEPARATOR: Final = re.compile(r"[(\[{)\]},]")
_PLAIN: Final = re.compile(r"[\w.\-/ ]{0,24}")


class Bracket(NamedTuple):
    """What stands between the round brackets behind a name; `defined` says that a head has it."""

    called: str
    defined: bool
    begin: int
    end: int


class Head(NamedTuple):
    """`def` or `class` with its name: where it begins, its indentation, and the class that it stands in."""

    name: str
    kind: str
    begin: int
    indent: int
    owner: str


class SourceText:
    """A file: its text without comments and long strings, every character at its place, and what stands in it."""

    def __init__(self, text: str) -> None:
        self.brackets: list[Bracket] = []
        self._outer: list[tuple[int, int]] = []  # of all brackets, those that stand in no other
        self.text = self._read(text)
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self.heads = list(_heads(self.text))
        self._head_begins = [head.begin for head in self.heads]
        lines = ((self.line_of(begin), self.line_of(end)) for begin, end in self._outer)
        self._joined = _joined(span for span in lines if span[0] < span[1])

    def _read(self, text: str) -> str:
        parts, done = [], 0
        opened: list[int] = []
        begins = [len(text) + 1, *reversed([match.start() for match in _BEGINS.finditer(text)])]
        heads = {match.start("name") for match in _HEAD.finditer(text)}
        called = {one.end(): (one["name"], one.start() in heads) for one in _CALLED.finditer(text)}
        for token in _TOKEN.finditer(text):
            kind, at = token.lastgroup, token.start()
            if at >= begins[-1]:  # no bracket is open there, whatever was read wrongly before
                while at >= begins[-1]:
                    begins.pop()
                opened.clear()
            if kind == "open":
                opened.append(at + 1)
            elif kind == "close" and opened:
                begin = opened.pop()
                if begin in called:
                    self.brackets.append(Bracket(*called[begin], begin, at))
                if not opened:
                    self._outer.append((begin, at))
            elif kind == "comment":
                parts += [text[done:at], " " * (token.end() - at)]
                done = token.end()
            elif kind == "string" and not _is_plain(text, at, token.end()):
                parts += [text[done : at + 1], re.sub(r"[^\n]", HIDDEN, token[0][1:-1])]
                done = token.end() - 1
        return "".join([*parts, text[done:]])

    def line_of(self, offset: int) -> int:
        """The number of the line that a character stands on."""
        return bisect.bisect_left(self._ends, offset) + 1

    def span_of(self, line: int) -> tuple[int, int]:
        """First and last line of the statement that a line belongs to, by its brackets."""
        at = bisect.bisect_right(self._joined, (line, len(self._ends) + 2)) - 1
        first, last = self._joined[at] if at >= 0 else (line, line)
        return (first, last) if first <= line <= last else (line, line)

    def is_continued(self, offset: int) -> bool:
        """Whether a bracket that was opened on a line above is still open here."""
        line = self.line_of(offset)
        return self.span_of(line)[0] < line

    def lines(self, first: int, last: int) -> str:
        """The text from one line to another; empty where there is none, as of a script that no file holds."""
        if first - 2 >= len(self._ends):
            return ""
        begin = self._ends[first - 2] + 1 if first > 1 else 0
        return self.text[begin : self._ends[last - 1] if last <= len(self._ends) else len(self.text)]

    def body_of(self, name: str) -> str:
        """The text of the only function of this name; empty where there is none, or several."""
        found = [at for at, head in enumerate(self.heads) if head.name == name and head.kind == "def"]
        if len(found) != 1:
            return ""
        own = self.heads[found[0]]
        after = (head.begin for head in self.heads[found[0] + 1 :] if head.indent <= own.indent)
        text = self.text[own.begin : next(after, len(self.text))]
        lines = text.split("\n")
        inside = itertools.takewhile(lambda one: not one.strip() or _depth(one) > own.indent, lines[1:])
        return "\n".join([lines[0], *inside])

    def function_at(self, offset: int) -> str:
        """The name of the innermost function or class around a statement, as code objects have it."""
        first, _ = self.span_of(self.line_of(offset))
        line = self.lines(first, first)
        indent = len(line) - len(line.lstrip())
        for at in range(bisect.bisect_left(self._head_begins, offset) - 1, -1, -1):
            if self.heads[at].indent < indent:
                return self.heads[at].name
        return "<module>"


def arguments(source: SourceText, bracket: Bracket) -> list[tuple[int, str]]:
    """What stands between the commas of a pair of brackets, each with the place where it begins."""
    text, depth, begin = source.text, 0, bracket.begin
    found: list[tuple[int, str]] = []
    for match in _SEPARATOR.finditer(text, bracket.begin, bracket.end):
        character = match[0]
        if character != ",":
            depth += 1 if character in "([{" else -1
        elif depth == 0:
            found.append((begin, text[begin : match.start()]))
            begin = match.end()
    found.append((begin, text[begin : bracket.end]))
    return [(at + len(one) - len(one.lstrip()), one.strip()) for at, one in found if one.strip()]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_plain(text: str, begin: int, end: int) -> bool:
    """Whether a string is a plain word without a prefix."""
    return not text[max(begin - 1, 0) : begin].isalpha() and _PLAIN.fullmatch(text, begin + 1, end - 1) is not None


def _heads(text: str) -> Iterator[Head]:
    classes: list[tuple[int, str]] = []
    for match in _HEAD.finditer(text):
        indent = len(match["indent"])
        while classes and classes[-1][0] >= indent:
            classes.pop()
        owner = classes[-1][1] if classes else ""
        yield Head(match["name"], match["kind"], match.start("kind"), indent, owner)
        if match["kind"] == "class":
            classes.append((indent, match["name"]))


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of lines, in order; those that share a line are one."""
    found: list[tuple[int, int]] = []
    for first, last in spans:
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
