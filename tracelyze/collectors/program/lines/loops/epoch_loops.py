"""How many epochs the loop of a script is written for, and how many batches each of them has without a loader: the
arguments of `range` in `for epoch in range(epochs)` and in `for begin in range(0, len(x), size)`."""

from __future__ import annotations

import re
from types import FrameType
from typing import Final, NamedTuple

from tracelyze.collectors.program.lines.instructions import LONGEST
from tracelyze.collectors.program.lines.loops import extents, range_loops

EPOCH: Final = re.compile(r"^(?:\w*_)?ep(?:och)?s?(?:_?(?:i|idx|index|num|no|n|number))?$|^_?e$", re.IGNORECASE)


class EpochLoop(NamedTuple):
    """The line of a `for`, and the rounds that it is written for."""

    line: int
    planned: int


def around(frame: FrameType) -> EpochLoop | None:
    """The innermost loop over epochs around the line that `frame` is at."""
    for one in reversed(range_loops.of_function(frame.f_code)):
        if one.line <= frame.f_lineno <= one.last and EPOCH.match(one.variable):
            planned = one.rounds(frame)
            if planned is not None:
                return EpochLoop(one.line, planned)
    return None


def batches(frames: list[FrameType], epochs: EpochLoop) -> int | None:
    """Rounds of the only loop, one over `range`, that is under way within the loop over `epochs`.

    `frames`: the script's functions under way, the innermost first; the loop over the epochs stands in the last one.
    None where there is none, or another one beside it, whose rounds are not known.
    """
    found: list[int | None] = []
    for frame in frames:
        code, at = frame.f_code, frame.f_lineno
        if len(code.co_code) > LONGEST:
            return None
        ranges = {one.line: one for one in range_loops.of_function(code)}
        for line, last in set(extents.loops(code)):
            if line <= at <= last and (frame is not frames[-1] or line > epochs.line):
                found.append(ranges[line].rounds(frame) if line in ranges else None)
    return found[0] if len(found) == 1 else None
