"""The line of the script that gives a framework the setting which a diagnosis asks to change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


def in_place_of(place: Location | None, process: Process, names: Sequence[str]) -> Location | None:
    """The only line that sets one of these arguments, where a place is the call by which a framework runs the loop, as
    `trainer.train()`, or is not known; else the place itself."""
    if not names or (place is not None and not _runs_the_loop(place, process)):
        return place
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(names)})\s*=(?!=)")
    found = [one for one in process.locations("setting") if pattern.search(one.source)]
    return found[0] if len(found) == 1 else place


def _runs_the_loop(place: Location, process: Process) -> bool:
    """Whether backwards or steps were seen at this line, and it names neither: a library makes them within."""
    own = any(one.file_line == place.file_line for role in ("backward", "step") for one in process.locations(role))
    return own and not re.search(r"backward\(|\.step\(", place.source)
