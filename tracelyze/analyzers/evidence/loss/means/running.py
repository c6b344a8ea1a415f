"""The running sum of losses that a line logs, as the script names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def sum_at(process: Process) -> str:
    """The name of the sum that a line logs, as `writer.add_scalar("loss", running_loss / count, step)`, or that a line
    above it divides, as `mean = self.running_loss / count`."""
    place = process.location("report")
    text = recorded_text.around(process, place) if place else {}
    own = own_statement.at(process, place)
    logs = own.text if own is not None else place.source if place else ""
    lines = [logs, *(text[number] for number in sorted(text, reverse=True) if place and number < place.line)]
    named = (re.findall(r"(?<![\w.])([A-Za-z_][\w.]*) / ", line) for line in lines)
    return next((names[0] for names in named if len(names) == 1), "running_loss")
