"""Where the loop that trains calls what one rank was seen in far more often than any other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_BY_RANK: Final = re.compile(r"if\b.*(?:\brank\b|get_rank\(|is_main_process|is_local_main_process|is_global_zero)")


SHARED: Final = (
    "Line {by} decides by the rank who does what line {call} calls: do it less often, or share it out {among}."
)

RARELY: Final = "Do what line {call} calls less often, such as once per epoch, or share it out {among}."


def everyone(process: Process) -> str:
    """All ranks of the run, in words."""
    return "both ranks" if process.world_size == 2 else "all ranks"


class Called(NamedTuple):
    """The line of the loop with the call, and what to change there, which names a condition right above it that asks
    for the rank."""

    place: Location
    fix: str


def called(process: Process, seen: Location | None) -> Called | None:
    """The only call of the function of a line, in the function that trains; None where the line stands there itself."""
    trains = process.longest.backward_location if process.optimizations else None
    if seen is None or trains is None or not seen.function.isidentifier() or seen.function == trains.function:
        return None
    lines = recorded_text.of_function(process, trains)
    call = re.compile(rf"(?<!def )(?<!\w){re.escape(seen.function)}\(")
    at = [number for number, text in lines.items() if call.search(text)]
    if len(at) != 1:
        return None
    (number,) = at
    depth = recorded_text.indent_of(lines[number])
    above = [one for one, text in lines.items() if one < number and text.strip()]
    outer = max((one for one in above if recorded_text.indent_of(lines[one]) < depth), default=number)
    by_rank = _BY_RANK.match(lines[outer].strip()) is not None
    place = trains.at(number, lines[number])
    among = f"{'between' if process.world_size == 2 else 'among'} {everyone(process)}"
    fix = SHARED if by_rank else RARELY
    return Called(place, fix.format(by=outer, call=number, among=among))
