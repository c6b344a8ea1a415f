"""For how long the training thread stood in one line at the end of what was recorded, and what it used meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Location


@dataclass(frozen=True)
class Stand:
    """`waits`: the system call of the thread; `woken`: how often it has begun to wait anew since it stood, and `below`:
    processes that it has started and that live, each -1 where that is not known; `busy`: the largest share of a
    processor that the thread, all threads together, or these processes took; `device`: the largest share of the time
    for which a GPU worked; `dump`: the stacks that were written down meanwhile."""

    place: Location | None
    since: float
    seconds: float
    waits: str
    woken: int
    below: int
    busy: float
    device: float
    dump: dict[str, Any] | None


def of(process: Process) -> Stand | None:
    """None where the training moved on to the end, and where what the thread waited in is not known."""
    samples = process.samples
    times, sites = samples["time"], samples["site"]
    waits, innermost = list(samples.text("waits")), list(samples.text("innermost"))
    if not len(times) or not waits[-1]:
        return None
    first = _first(sites, waits, innermost)
    since, seconds = float(times[first]), float(times[-1] - times[first])
    shares = [
        _grown(samples[name][first:]) / seconds
        for name in ("thread_cpu", "cpu_seconds", "below_cpu")
        if seconds > 0 and samples.has(name)
    ]
    devices = process.tables["devices"]
    of_device = devices["busy"][devices["time"] >= since] if devices.has("busy") else np.empty(0)
    below = samples["below"][first:]
    dumps = [row for row in process.events_of("stacks") if float(row["time"] or 0.0) >= since]
    return Stand(
        place=process.site(float(sites[-1])),
        since=since,
        seconds=seconds,
        waits=str(waits[-1]),
        woken=int(_grown(samples["woken"][first:])) if samples.has("woken") else -1,
        below=int(np.nanmax(below)) if np.isfinite(below).any() else -1,
        busy=max(shares, default=1.0),
        device=float(np.nanmax(of_device, initial=0.0)),
        dump=dumps[-1] if dumps else None,
    )


def _first(sites: Floats, waits: list[str | None], innermost: list[str | None]) -> int:
    """The first of the last looks that found the thread in the same line; a single look elsewhere is passed over, as
    of a loop that asks again and again."""
    first = last = len(waits) - 1
    for row in range(last, -1, -1):
        there = sites[row] == sites[last] or (np.isnan(sites[row]) and np.isnan(sites[last]))
        if not waits[row] or first - row > 2:
            break
        if there and innermost[row] == innermost[last]:
            first = row
    return first


def _grown(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.max(known) - np.min(known)) if len(known) else 0.0


class Gaps(NamedTuple):
    """Times between two steps in seconds: the longest, with validation, saving and all else in it, and the median, None
    where there are no two."""

    longest: float
    usual: float | None


def gaps(process: Process) -> Gaps:
    """Those of all steps of the process."""
    times = np.sort(process.steps["time"])
    found = np.diff(times[np.isfinite(times)])
    return Gaps(float(found.max()), float(np.median(found))) if len(found) else Gaps(0.0, None)
