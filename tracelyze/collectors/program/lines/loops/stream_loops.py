"""The loop by which a stream yields its samples: `for shard in self.shards:` in `__iter__`, read off its bytecode."""

from __future__ import annotations

from types import CodeType
from typing import Any

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import definitions
from tracelyze.collectors.program.lines.instructions import by_line
from tracelyze.collectors.program.lines.loops import extents


def note(dataset: Any, sites: Sites) -> None:
    """Record the line of that loop, where the script's own `__iter__` has no other one beside it."""
    own = (definitions.code_of_method(type(one), "__iter__") for one in definitions.wrapped_in(dataset))
    code = next((one for one in own if one is not None), None)
    line = outermost(code) if code is not None else None
    if code is not None and line is not None:
        sites.at("stream-loop", code, line)


def outermost(code: CodeType) -> int | None:
    """The line of the only loop of a generator that stands in no other, if it is a `for` and all is yielded in it."""
    around = extents.loops(code)
    outside = [one for one in around if sum(first <= one[0] and one[1] <= last for first, last in around) == 1]
    if len(outside) != 1 or outside[0][0] not in extents.heads_of_outermost(code):
        return None
    begin, end = outside[0]
    yields = [line for line, one in by_line(code) if one.opname.startswith("YIELD")]
    return begin if yields and all(begin <= line <= end for line in yields) else None
