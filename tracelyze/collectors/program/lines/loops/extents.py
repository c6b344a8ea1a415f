"""From which line to which a loop of a function reaches, read off its jumps."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.program.lines.instructions import by_line

_NOTHING: Final = ("CACHE", "EXTENDED_ARG")


class _For(NamedTuple):
    """A `for` statement, or one of a comprehension: its line, and the offsets of its head and of what follows it."""

    line: int
    head: int
    end: int
    in_comprehension: bool


class _Handler(NamedTuple):
    """Code that handles an exception, `except` or the end of a `with`: where it begins, and from where to where what
    it guards reaches, in offsets."""

    begin: int
    guards_from: int
    guards_to: int


def loops(code: CodeType) -> list[tuple[int, int]]:
    """First and last line of each `for` and `while` statement of a function: what a jump goes back over.

    From Python 3.12 on, handlers of exceptions stand behind all other code. What goes from there back to the line
    below its `try` or `with` is no loop, and comprehensions, which then stand in the function, are none either.
    """
    lines: dict[int, int] = {}  # by offset
    back: list[tuple[int, int]] = []  # where a jump leads, and where it stands
    for line, one in by_line(code):
        lines[one.offset] = line
        if "JUMP" in one.opname and type(one.argval) is int and one.argval <= one.offset:
            back += [(one.argval, one.offset)] if "NO_INTERRUPT" not in one.opname else []  # no `await`, `yield from`
    comprehensions = {one.head for one in _fors(code) if one.in_comprehension}
    handlers = _handlers(code) if back else []
    found: dict[int, int] = {}  # by the offset of its head, the last line of a loop
    for head, jump in back:
        handler = _left_by(head, jump, handlers)
        if head not in comprehensions and (handler is None or head <= handler.guards_from):
            parts = [(head, jump)] if handler is None else [(head, handler.guards_to), (handler.begin, jump)]
            there = [at for start, _, at in code.co_lines() if at and any(a <= start <= b for a, b in parts)]
            found[head] = max(found.get(head, 0), max(there, default=lines.get(jump, 0)))
    return sorted((lines.get(head, last), last) for head, last in found.items())


def loop_around(code: CodeType, line: int) -> int | None:
    """The line of the innermost `for` of a function around one of its lines; None where no loop stands around it."""
    found = None
    for one in _fors(code):
        if one.line <= line and not one.in_comprehension:
            last = max((there for start, _, there in code.co_lines() if there and start < one.end), default=one.line)
            found = one.line if last >= line else found
    return found


def heads_of_outermost(code: CodeType) -> list[int]:
    """Lines of `for` in no other loop: what they go over is computed once."""
    around = loops(code)
    heads = [one.line for one in _fors(code) if not one.in_comprehension]
    return [line for line in sorted(heads) if sum(first <= line <= last for first, last in around) == 1]


def _fors(code: CodeType) -> list[_For]:
    """Every `for` of a function. That of a comprehension prepares its result between the iterator and its head."""
    found: list[_For] = []
    before = ""
    for line, one in by_line(code):
        if one.opname == "FOR_ITER":
            within = any(other.in_comprehension and other.head < one.offset < other.end for other in found)
            found.append(_For(line, one.offset, int(one.argval), within or before != "GET_ITER"))
        before = before if one.opname in _NOTHING else one.opname
    return found


def _handlers(code: CodeType) -> list[_Handler]:
    """The handlers of a function that guard code which is no handler itself, in their order."""
    entries: Any = getattr(dis.Bytecode(code), "exception_entries", ()) if code.co_exceptiontable else ()
    first = min((one.target for one in entries), default=0)
    guarded = [one for one in entries if one.start < first]
    begins = sorted({one.target for one in guarded})
    return [
        _Handler(
            begin,
            min(one.start for one in guarded if one.target == begin),
            max(one.end for one in guarded if one.target == begin),
        )
        for begin in begins
    ]


def _left_by(head: int, jump: int, handlers: list[_Handler]) -> _Handler | None:
    """The handler that a jump leaves backwards."""
    before = [one for one in handlers if one.begin <= jump]
    return before[-1] if before and head < before[-1].begin else None
