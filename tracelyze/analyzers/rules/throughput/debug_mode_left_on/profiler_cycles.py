"""A profiler whose schedule begins again and again: its windows, what they cost, and the line to change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.throughput import outliers
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script import script_lines
from tracelyze.formatting import duration, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

_SCHEDULE: Final = r"\bactive\s*="
_MADE: Final = r"\b(?:activities|on_trace_ready)\s*="
_CALL: Final = re.compile(r"\b(?:[\w.]+\.)?schedule\((?P<given>[^()]*\bactive\s*=[^()]*)\)")
_ELSE: Final = "or leave the profiler out."
SCHEDULED: Final = (
    "schedule = torch.profiler.schedule(wait=50, warmup=2, active=5, repeat=1)\n"
    "with torch.profiler.profile(schedule=schedule) as profiler:\n"
    "    for batch in loader:\n        train_step(batch)\n        profiler.step()"
)
_REPEAT: Final = re.compile(r",?\s*\brepeat\s*=\s*[^,]+")


@dataclass(frozen=True)
class Cycles:
    """Windows in which a profiler recorded, until the end of the run; seconds of the steps that wrote them down."""

    count: int
    first: int  # row of the first step in one
    last: int  # row of the first step in the last one
    share: float  # of the steps
    seconds: float  # that the steps behind a window took beyond the median
    lost: float  # the part of the time that these are


def cycles(optimization: Optimization) -> Cycles | None:
    """The windows, if they go on until the end; None without any, or where the last of them is long over."""
    steps = optimization.steps
    on = steps["profiled"] == 1
    begins = np.flatnonzero(on & ~np.r_[False, on[:-1]])
    ends = np.flatnonzero(~on & np.r_[False, on[:-1]])
    if len(begins) <= 1 or len(on) - np.flatnonzero(on)[-1] > np.diff(begins).max():
        return None
    seconds, _ = outliers.net_seconds(optimization, 0)
    usual = float(np.nanmedian(seconds))
    excess = float(np.nansum(np.clip(seconds[ends] - usual, 0, None)))
    return Cycles(
        len(begins),
        int(begins[0]),
        int(begins[-1]),
        float(on.mean()),
        excess,
        excess / max(float(np.nansum(seconds)), 1e-9),
    )


def line(process: Process) -> Location | None:
    """The only line that gives a profiler its schedule, else the only one that says what it records."""
    return script_lines.only(process, "setting", _SCHEDULE) or script_lines.only(process, "setting", _MADE)


def told(optimization: Optimization, found: Cycles) -> str:
    """What happened, in sentences."""
    share = share_of(found.share, plural(len(optimization.steps), "step"))
    return (
        f"It was on in {share}: it began to record {found.count} times, the last time at step "
        f"{timing.step_at(optimization, found.last):,}. The steps behind the windows, in which traces are made, "
        f"took {duration(found.seconds)} longer than the median."
    )


def advice(place: Location | None) -> tuple[str, str]:
    """Words and an example: the schedule of that line, with an end, where the line holds all of it."""
    call = _CALL.search(place.source) if place is not None else None
    if call is None:
        return f"Profile one window of a few steps, by a schedule with repeat=1, {_ELSE}", SCHEDULED
    given = _REPEAT.sub("", call["given"]).strip().rstrip(",")
    fix = (
        f"Let the schedule end after one window (repeat=1: with 0, or without it, windows follow without end), {_ELSE}"
    )
    return fix, call[0].replace(call["given"], f"{given}, repeat=1")
