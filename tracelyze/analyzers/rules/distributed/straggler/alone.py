"""Where the loop that trains calls what one rank was seen in far more often than any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.computed.ranks import called_by_rank

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

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
    call = called_by_rank.of(process, seen)
    if call is None:
        return None
    fix = SHARED if call.by_rank is not None else RARELY
    by = call.by_rank.line if call.by_rank is not None else call.place.line
    among = f"{'between' if process.world_size == 2 else 'among'} {everyone(process)}"
    return Called(call.place, fix.format(by=by, call=call.place.line, among=among))
