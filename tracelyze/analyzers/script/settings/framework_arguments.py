"""The line of the script that gives a framework the setting which a diagnosis asks to change."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.settings import constants
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Finding, Location


def in_place_of(place: Location | None, process: Process, names: Sequence[str]) -> Location | None:
    """The only line that sets one of these arguments, where a place is the call by which a framework runs the loop, as
    `trainer.train()`, or is not known; else the place itself."""
    if not names or (place is not None and not _runs_the_loop(place, process)):
        return place
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(names)})\s*=(?!=)")
    found = [one for one in process.locations("setting") if pattern.search(one.source)]
    return found[0] if len(found) == 1 else place


def with_edit(finding: Finding, process: Process, names: Sequence[str]) -> Finding:
    """The finding with an edit of the line that it points to, where that gives a framework one of these arguments as
    the constant that was measured, and the fix says what the value is to be instead."""
    place, setting = finding.location, finding.setting
    if finding.diff is not None or place is None or setting is None or not setting.instead or not names:
        return finding
    if all(place.file_line != one.file_line for one in process.locations("setting")):
        return finding
    line = recorded_text.line_at(process, place)
    pattern = rf"(?<![\w.])(?:{'|'.join(names)})\s*=\s*(?P<value>[\w.+-]+)(?=\s*(?:[,)#]|$))"
    found = list(re.finditer(pattern, line[1])) if line is not None else []
    if line is None or len(found) != 1 or not constants.fits(found[0]["value"], setting):
        return finding
    begin, end = found[0].span("value")
    indent, text = line
    edit = Diff(place.file, place.line, [indent + text], [indent + text[:begin] + setting.instead + text[end:]])
    return replace(finding, diff=edit)


def number_of(process: Process, name: str) -> int | None:
    """The whole number that the only line which sets this argument gives it; None where it gives it something else."""
    pattern = re.compile(rf"(?<![\w.]){name}\s*=\s*(\d+)(?=\s*(?:[,)#]|$))")
    found = [int(match[1]) for one in process.locations("setting") if (match := pattern.search(one.source))]
    return found[0] if len(found) == 1 else None


def _runs_the_loop(place: Location, process: Process) -> bool:
    """Whether backwards or steps were seen at this line, and it names neither: a library makes them within."""
    own = any(one.file_line == place.file_line for role in ("backward", "step") for one in process.locations(role))
    return own and not re.search(r"backward\(|\.step\(", place.source)
