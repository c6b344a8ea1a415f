"""A metric that goes over everything it has collected at every step, though the script shows it at some steps only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_COMPUTES: Final = re.compile(r"(?:(?P<target>\w+)\s*=(?!=).*?)?(?<![\w.])(?P<metric>[A-Za-z_][\w.]*)\.compute\(\)")
_SOMETIMES: Final = re.compile(r"if\b.*%.*:$")
_FIX: Final = (
    "{metric}.compute() goes over all that {metric} was given since its last reset(). Call {metric}.reset() as each "
    "epoch begins, and compute() only in the steps that show its value."
)


def of(process: Process, place: Location | None) -> Remedy | None:
    """What to do about a line that computes such a metric, unless a recorded line resets it."""
    found = _COMPUTES.search(place.source) if place is not None else None
    if place is None or found is None:
        return None
    metric = found["metric"]
    part = re.escape(metric.split(".")[-1])
    if any(re.search(rf"\b{part}\.reset\(", text) for text in recorded_text.everything(process)):
        return None
    return Remedy(_FIX.format(metric=metric), _moved(process, place, found["target"]))


def _moved(process: Process, place: Location, target: str | None) -> str:
    """The line within the `if step % every == 0:` that stands right below it, if that does not ask for its value."""
    lines = recorded_text.of_function(process, place)
    above, below = lines.get(place.line, ""), lines.get(place.line + 1, "")
    condition = below.split("  #")[0].strip()
    alike = recorded_text.indent_of(above) == recorded_text.indent_of(below)
    if not target or not alike or not _SOMETIMES.match(condition) or re.search(rf"\b{target}\b", condition):
        return ""
    return f"{condition}\n    {place.source.split('  #')[0].strip()}  # line {place.line} moves to here"
