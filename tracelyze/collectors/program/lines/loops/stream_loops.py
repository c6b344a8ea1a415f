"""The loop by which a stream yields its samples: `for shard in self.shards:` in `__iter__`, read off its bytecode."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import definitions
from tracelyze.collectors.program.lines.instructions import by_line


def note(dataset: Any, sites: Sites) -> None:
    """Record the line of that loop, where the script's own `__iter__` has no other one beside it."""
    own = (definitions.code_of_method(type(one), "__iter__") for one in definitions.wrapped_in(dataset))
    code = next((one for one in own if one is not None), None)
    line = outermost(code) if code is not None else None
    if code is not None and line is not None:
        sites.at("stream-loop", code, line)


def outermost(code: CodeType) -> int | None:
    """The line of the only loop of a generator that stands in no other, if it is a `for` and all is yielded in it."""
    heads: dict[int, tuple[int, int]] = {}  # of each `for`, by its offset: its line, and the offset of its end
    spans: list[tuple[int, int]] = []  # of every loop, by offsets
    yields: list[int] = []
    for line, one in by_line(code):
        if one.opname == "FOR_ITER":
            heads[one.offset] = line, int(one.argval)
            spans.append((one.offset, int(one.argval)))
        elif one.opname.startswith("YIELD"):
            yields.append(one.offset)
        elif _jumps(one) and one.argval <= one.offset and one.argval not in heads:  # a `while`
            spans.append((one.argval, one.offset))
    outside = [
        one
        for one in spans
        if not any(begin <= one[0] and one[1] <= end for begin, end in spans if (begin, end) != one)
    ]
    begin, end = outside[0] if len(outside) == 1 else (0, 0)
    whole = bool(yields) and begin in heads and all(begin < at < end for at in yields)
    return heads[begin][0] if whole else None


def _jumps(one: dis.Instruction) -> bool:
    """Whether it is a jump of the program's own, and no wait for what `yield from` gives."""
    return "JUMP" in one.opname and "INTERRUPT" not in one.opname and type(one.argval) is int
