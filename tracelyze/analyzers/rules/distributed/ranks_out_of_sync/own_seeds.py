"""The line that seeds each rank differently, above the one that makes what they train."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_BY_RANK: Final = re.compile(r"(?i)rank\b|\bprocess_index\b|\bworker_id\b")


def line(process: Process) -> Location | None:
    """The only global seed of the script, if it depends on the rank, and stands above the line of the optimizer in its
    function."""
    seeds = [one for one in process.locations("seed") if script_lines.seeds_all(one)]
    made = process.longest.made_at
    if len({one.file_line for one in seeds}) != 1 or made is None or not _BY_RANK.search(seeds[0].source):
        return None
    above = seeds[0].file_function == made.file_function and seeds[0].line < made.line
    return seeds[0] if above else None
