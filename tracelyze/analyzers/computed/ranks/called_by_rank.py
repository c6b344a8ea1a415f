"""Where the function that trains calls another one, in which a rank was seen, and whether it asks for the rank."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_BY_RANK: Final = re.compile(r"if\b.*(?:\brank\b|get_rank\(|is_main_process|is_local_main_process|is_global_zero)")


class OnlyCall(NamedTuple):
    """The line with the call, and the condition right above it, where that asks for the rank."""

    place: Location
    by_rank: Location | None


def of(process: Process, seen: Location | None) -> OnlyCall | None:
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
    condition = lines[outer].strip()
    place = trains.at(number, lines[number])
    asks = _BY_RANK.match(condition) is not None
    return OnlyCall(place, trains.at(outer, condition) if asks else None)
