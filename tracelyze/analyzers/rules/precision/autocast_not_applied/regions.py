"""The line that keeps autocast away from matrix products: a region in which it is off, a function that is given
float32, or a region for a device on which no tensor is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

_OFF: Final = re.compile(r"\bautocast\([^#]*\benabled\s*=\s*False\b")
_CASTS: Final = re.compile(r",?\s*\bcast_inputs\s*=\s*torch\.(?:float32|float|float64|double)\b")
_DEVICE: Final = re.compile(
    r"\bautocast\(\s*(?:device_type\s*=\s*)?[\"'](?P<device>[a-z]+)[\"']|\b(?P<old>cuda|cpu)\.amp\."
)


class Away(NamedTuple):
    """The line, where it is known; what to do, and the line with that done."""

    place: Location | None
    fix: str
    code: str


def away(optimization: Optimization) -> Away:
    """The only recorded line that opens a region in which autocast is off, or has a function of autograd called with
    float32; without one the only line that opens a region for another device than that of the parameters."""
    place = _line(optimization)
    return Away(place, *_remedy(place))


def _line(optimization: Optimization) -> Location | None:
    process = optimization.process
    off = {one.file_line: one for pattern in (_OFF, _CASTS) for one in recorded_text.matching(process, pattern)}
    if off:
        return next(iter(off.values())) if len(off) == 1 else None
    device = str(optimization.facts.get("device") or "").partition(":")[0]
    lines = {one.file_line: one for one in process.locations("autocast-text")}
    other = [one for one in lines.values() if device and _device_of(one) not in ("", device)]
    return other[0] if len(other) == 1 else None


def _remedy(place: Location | None) -> tuple[str, str]:
    if place is None:
        fix = "Look for autocast(enabled=False) around these modules, and name the device that the tensors are on."
        return fix, ""
    if _CASTS.search(place.source):
        fix = (
            f"Leave cast_inputs out of line {place.line}: with it the function runs with autocast off, on inputs that "
            "are cast to that type."
        )
        return fix, f"{re.sub(_CASTS, '', place.source).replace('(, ', '(')}  # in place of line {place.line}"
    if _OFF.search(place.source):
        fix = f"Take autocast(enabled=False) in line {place.line} away from these modules"
        return f"{fix}, or name the device they are on.", ""
    return f"Name the device that the tensors are on in line {place.line}.", ""


def _device_of(place: Location) -> str:
    found = _DEVICE.search(place.source)
    return (found["device"] or found["old"]) if found is not None else ""
