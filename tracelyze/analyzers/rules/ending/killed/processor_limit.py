"""A limit of the process's processor time (ulimit -t, RLIMIT_CPU), and whether a process had come near it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.diagnosis import Evidence
from tracelyze.formatting import duration

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_HERE: Final = "Raise the limit that line {line} sets, or take it away. It counts in seconds"
_BY_NAME: Final = (
    "Multiply {name} by {factor:,} in line {line}: it reads as {unit}s, and the limit that it sets counts in seconds"
)
_CALLS: Final = re.compile(r"(?<!setrlimit)(?<=\w)\(")  # of what may make seconds of it
_UNITS: Final = {"minute": 60, "hour": 3600}
_NAMED: Final = re.compile(r"(?<![\w.])(?P<name>(?:[A-Za-z_]\w*\.)*\w*(?P<unit>minute|hour)s?)(?!\w)")
_ELSEWHERE: Final = (
    "Raise the limit of processor time, or take it away: `ulimit -t` in the shell or the job's script, "
    "resource.setrlimit(resource.RLIMIT_CPU, ...) in the program. Both count in seconds"
)
_SAVE: Final = (
    ", of all threads together. Save checkpoints, so that the next run can resume. A handler of SIGXCPU can save them "
    "where the hard limit lies above the soft one."
)


class UsedUp(NamedTuple):
    """Processor time in seconds: what a process had used when it was last looked at, and the limit that it was near."""

    used: float
    allowed: float

    @property
    def said(self) -> str:
        """A sentence."""
        return (
            f" It had used {duration(self.used)} of processor time when last looked at, of {duration(self.allowed)} "
            "that it was allowed (RLIMIT_CPU): the kernel ends a process there."
        )

    @property
    def evidence(self) -> Evidence:
        """What was used beside the limit."""
        return Evidence("processor time used", duration(self.used), "", duration(self.allowed), "RLIMIT_CPU")


def fix(place: Location | None) -> str:
    """What to do about a limit; `place`: the line of the script that sets it."""
    return (_ELSEWHERE if place is None else _other_unit(place) or _HERE.format(line=place.line)) + _SAVE


def _other_unit(place: Location) -> str:
    """What to do where the line is given minutes or hours as they are, by the name of the only such variable."""
    found = {one["name"]: one["unit"] for one in _NAMED.finditer(code_of(place.source))}
    if len(found) != 1 or "*" in place.source or _CALLS.search(place.source):
        return ""
    ((name, unit),) = found.items()
    return _BY_NAME.format(line=place.line, name=name, unit=unit, factor=_UNITS[unit])


def place(process: Process) -> Location | None:
    """The only line of the script that sets this limit itself."""
    return script_lines.only(process, "limit", r"\bRLIMIT_CPU\b")


def reached(process: Process, unseen: float) -> UsedUp | None:
    """What was used up, if the limit was within `unseen` seconds of the last look, at the pace of the looks before."""
    samples = process.samples
    limit, used, time = samples["cpu_limit"], samples["cpu_seconds"], samples["time"]
    seen = np.isfinite(limit) & np.isfinite(used) & np.isfinite(time)
    if not seen.any():
        return None
    limit, used, time = limit[seen], used[seen], time[seen]
    passed = np.diff(time)
    pace = float(np.max(np.diff(used)[passed > 0] / passed[passed > 0], initial=0.0))
    return UsedUp(float(used[-1]), float(limit[-1])) if used[-1] + pace * unseen >= limit[-1] else None
