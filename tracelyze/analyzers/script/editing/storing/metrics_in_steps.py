"""A metric that goes over everything so far at every step, though the script shows it at some steps only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_COMPUTES: Final = re.compile(r"(?<![\w.])(?P<metric>[A-Za-z_][\w.]*)\.compute\(\)")
_SOMETIMES: Final = re.compile(r"if\b.*%.*:$")
_FIX: Final = (
    "{metric}.compute() goes over all that {metric} was given since its last reset(). Call {metric}.reset() as each "
    "epoch begins, and compute() only in the steps that show its value."
)
_ANY: Final = (
    "Line {0.line} goes over everything so far, at every step. Compute {1} only in the steps that show it, below the "
    "condition of line {2}, and let what it goes over begin anew with each epoch."
)
_ASSIGNS: Final = re.compile(r"(?P<target>[A-Za-z_]\w*)\s*=(?!=)(?!\s*[\w.]+\s*=(?!=))")  # to one name


def of(process: Process, place: Location | None) -> Remedy | None:
    """What to do about a line that computes such a metric, unless a recorded line resets it; or about another one whose
    value is read in the condition below it alone."""
    if place is None:
        return None
    found, moved = _COMPUTES.search(place.source), _moved(process, place)
    if found is None:
        assigns = _ASSIGNS.match(place.source)
        read = recorded_text.of_function(process, place).get(place.line + 2, "")
        if assigns is None or not moved or not re.search(rf"\b{assigns['target']}\b", read):
            return None
        return Remedy(_ANY.format(place, assigns["target"], place.line + 1), moved)
    metric = found["metric"]
    part = re.escape(metric.split(".")[-1])
    if any(re.search(rf"\b{part}\.reset\(", text) for text in recorded_text.everything(process)):
        return None
    return Remedy(_FIX.format(metric=metric), moved)


def _moved(process: Process, place: Location) -> str:
    """The line within the `if step % every == 0:` that stands right below it, if that does not ask for its value."""
    lines = recorded_text.of_function(process, place)
    above, below = lines.get(place.line, ""), lines.get(place.line + 1, "")
    condition, assigns = code_of(below).strip(), _ASSIGNS.match(place.source)
    alike = recorded_text.indent_of(above) == recorded_text.indent_of(below)
    if assigns is None or not alike or not _SOMETIMES.match(condition):
        return ""
    if re.search(rf"\b{assigns['target']}\b", condition):
        return ""
    return f"{condition}\n    {code_of(place.source).strip()}  # line {place.line} moves to here"
