"""From which line to which a loop of a function reaches, read off its jumps."""

from __future__ import annotations

from types import CodeType

from tracelyze.collectors.program.lines.instructions import by_line


def loops(code: CodeType) -> list[tuple[int, int]]:
    """First and last line of each `for` and `while` of a function: what a jump goes back over."""
    lines: dict[int, int] = {}  # by offset
    found: list[tuple[int, int]] = []
    for line, one in by_line(code):
        lines[one.offset] = line
        if "JUMP" in one.opname and type(one.argval) is int and one.argval <= one.offset:
            first = lines.get(one.argval, line)
            there = [at for start, _, at in code.co_lines() if at and one.argval <= start <= one.offset]
            found.append((first, max(there, default=line)))
    return found


def loop_around(code: CodeType, line: int) -> int | None:
    """The line of the innermost `for` of a function around one of its lines; None where no loop stands around it."""
    found = None
    for at, one in by_line(code):
        if one.opname == "FOR_ITER" and at <= line:
            last = max((there for start, _, there in code.co_lines() if there and start < one.argval), default=at)
            found = at if last >= line else found
    return found


def heads_of_outermost(code: CodeType) -> list[int]:
    """Lines of `for` in no other loop: what they go over is computed once."""
    around = loops(code)
    heads = [line for line, one in by_line(code) if one.opname == "FOR_ITER"]
    return [line for line in heads if sum(first <= line <= last for first, last in around) == 1]
