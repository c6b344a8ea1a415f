"""The lanes of a timeline: streams of the device, its idle time by cause, threads of the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution import attribution
from tracelyze.analyzers.kineto.attribution.attribution import CAUSE_TEXT, CAUSES
from tracelyze.analyzers.kineto.attribution.kernel_names import short
from tracelyze.analyzers.kineto.attribution.summary import Attributed
from tracelyze.analyzers.kineto.page.decimation import Slices, lane
from tracelyze.analyzers.kineto.page.host_detail import HostDetail, Nest, spoken
from tracelyze.analyzers.kineto.page.pictures import CAUSE_KINDS
from tracelyze.analyzers.kineto.timeline.categories import Activity
from tracelyze.analyzers.kineto.timeline.steps import Steps
from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Integers
from tracelyze.diagnosis import KINDS, Lane

MOST_STREAMS: Final = 6
MOST_OTHER_THREADS: Final = 2
LEVELS_MAIN: Final = 4
LEVELS_OTHER: Final = 2
LEVELS_PYTHON: Final = 3
DEEPEST: Final = 16
"""Streams and further threads that get a lane of their own, and levels of nesting: drawn at first, and when opened."""

LEAST_PYTHON: Final = 0.01
"""Share of the stretch that functions of the script must cover, beside those that cover all of it, to get a lane."""

WRAPPER: Final = 0.9
"""Share of a function's time from which on a single function that it calls stands for it."""

MOST_NAMES: Final = 3000
MOST_DETAILS: Final = 3000
"""Distinct names of a timeline, and distinct things that its events say of themselves."""

FINEST_CAUSE: Final = 1 / 400
"""Share of the stretch that a cause within a gap must fill to get a slice of its own."""

_KIND: Final = {name: index for index, name in enumerate(KINDS)}
_OF_ACTIVITY: Final = {
    Activity.GARBAGE: "garbage",
    Activity.INPUT: "input",
    Activity.SYNC: "sync",
    Activity.ALLOCATOR: "allocator",
    Activity.COPY: "copy-call",
    Activity.COMMUNICATION: "communication-call",
    Activity.CHECKPOINT: "checkpoint",
    Activity.OPTIMIZER: "optimizer",
    Activity.RUNTIME: "launch",
    Activity.OPERATOR: "operator",
    Activity.PYTHON: "python",
    Activity.STEP: "python",
    Activity.DROPPED: "python",
}
_KIND_OF_ACTIVITY: Final = np.array([_KIND[_OF_ACTIVITY[activity]] for activity in Activity], dtype=np.int64)


@dataclass
class Names:
    """The names of one timeline by number; when there are too many, the rest shares one."""

    numbers: dict[str, int] = field(default_factory=dict)
    details: dict[str, int] = field(default_factory=dict)

    def detail(self, said: str) -> int:
        """The number of what an event says of itself, -1 for nothing or where there are too many."""
        if not said or (said not in self.details and len(self.details) >= MOST_DETAILS):
            return -1
        return self.details.setdefault(said, len(self.details))

    def number(self, name: str) -> int:
        """The number of a name."""
        if name not in self.numbers and len(self.numbers) >= MOST_NAMES:
            name = "(another name)"
        return self.numbers.setdefault(name, len(self.numbers))

    def of(self, table: list[str], used: Integers) -> Integers:
        """Numbers for rows that point into `table`, with short names, shape of `used`."""
        distinct, place = np.unique(used, return_inverse=True)
        numbers = np.array([self.number(short(spoken(table[index]))) for index in distinct.tolist()], dtype=np.int64)
        return numbers[place.ravel()] if len(used) else np.zeros(0, dtype=np.int64)


def device_lanes(
    seen: Attributed, rows: Array, begin: float, end: float, names: Names, said: dict[tuple[float, str], str]
) -> tuple[list[Lane], int]:
    """A lane for each stream of one device, the busiest first within each role, and how many were left out.

    `rows`: the rows of the device that touch the stretch. `said`: what activities say, by begin and stream.
    """
    device = seen.trace.device
    queues, start, stop = device["queue"][rows], device["start"][rows], device["end"][rows]
    talks, computes = seen.work.communication[rows], seen.work.computation[rows]
    kind = np.where(computes, _KIND["compute"], np.where(talks, _KIND["communication"], _KIND["copy"]))
    time = np.bincount(queues, np.minimum(stop, end) - np.maximum(start, begin), len(seen.trace.queues))
    ranked = [int(queue) for queue in np.argsort(-time, kind="stable") if time[queue] > 0 or (queues == queue).any()]
    found: list[tuple[int, Lane]] = []
    for queue in ranked[:MOST_STREAMS]:
        own = np.flatnonzero(queues == queue)
        length = (stop - start)[own]
        role = int(np.bincount(kind[own], length + 1e-3).argmax())
        label = names.of(seen.trace.device_names, device["name"][rows[own]])
        level, launched = np.zeros(len(own), dtype=np.int64), _launched(seen, rows[own])
        stream = str(seen.trace.queues[queue][2])
        detail = np.array([names.detail(said.get((at, stream), "")) for at in start[own].tolist()], dtype=np.int64)
        slices = Slices(start[own], stop[own], label, kind[own], level, launched, detail)
        drawn = lane(f"stream {seen.trace.queues[queue][2]}, mostly {list(KINDS.values())[role]}", slices, begin, end)
        if drawn is not None:
            found.append((role, drawn))
    found.sort(key=lambda pair: pair[0])
    return [drawn for _, drawn in found], max(0, len(ranked) - MOST_STREAMS)


def _launched(seen: Attributed, rows: Array) -> Floats:
    """When the host launched these rows of the device, NaN where that is not known."""
    launch = seen.launch_of[rows]
    known = launch >= 0
    times = np.full(len(rows), np.nan)
    times[known] = seen.trace.launches["start"][launch[known]]
    return times


def idle_lane(
    seen: Attributed, step: Steps, rows: Array | slice, begin: float, end: float, names: Names
) -> Lane | None:
    """When the device was idle, coloured by the cause that explains most of each piece of a gap."""
    finest = FINEST_CAUSE * (end - begin)
    start, stop, cause = attribution.gaps_between(seen.trace, step, rows, seen.launch_of, seen.host, finest)
    if not len(start):
        return None
    # Pieces of one gap with one cause are one slice.
    fresh = np.append(True, (cause[1:] != cause[:-1]) | (start[1:] > stop[:-1] + 1e-6))
    start, stop, cause = start[fresh], stop[np.append(fresh[1:], True)], cause[fresh]
    said = [(names.number(f"idle: {CAUSE_TEXT[name]}"), _KIND[CAUSE_KINDS[name]]) for name in CAUSES]
    label, kind = np.array(said, dtype=np.int64)[cause].T
    nothing = np.full(len(start), np.nan)  # idle time is the device's, too, and nobody launched it
    slices = Slices(start, stop, label, kind, np.zeros(len(start), dtype=np.int64), nothing)
    return lane("device idle, by cause", slices, begin, end)


def host_lanes(host: HostDetail, begin: float, end: float, names: Names) -> tuple[list[Lane], int]:
    """Lanes of the host's threads, and how many threads with activity were left out."""
    lanes: list[Lane | None] = []
    main = host.main
    lanes.append(_nested("main thread", host, host.calls(main), LEVELS_MAIN, begin, end, names))
    lanes.append(_runtime("main thread", host, main, begin, end, names))
    frames = host.frames(main)
    inside = _worth_showing(frames) & ((frames.start > begin) | (frames.end < end))
    script = _nested("main thread, the script's functions", host, frames, LEVELS_PYTHON, begin, end, names, inside)
    lanes.append(script if script is not None and script.busy_us >= LEAST_PYTHON * (end - begin) else None)
    others = [thread for thread in host.threads if thread != main and _touches(host.calls(thread), begin, end)]
    backward = [thread for thread in others if host.is_backward(thread)]
    rest = [thread for thread in others if thread not in backward]
    shown = [*backward[:2], *rest[:MOST_OTHER_THREADS]]
    for thread in shown:
        process, number = host.detail.threads[thread]
        name = f"backward thread {number}" if thread in backward else f"thread {number} of process {process}"
        lanes.append(_nested(name, host, host.calls(thread), LEVELS_OTHER, begin, end, names))
        lanes.append(_runtime(name, host, thread, begin, end, names))
    return [drawn for drawn in lanes if drawn is not None], len(others) - len(shown)


def _worth_showing(frames: Nest) -> Array:
    """The functions that do something beside calling one other that takes nearly all of their time, shape [frames]."""
    length = frames.end - frames.start
    largest = np.zeros(len(length))
    nested = frames.parent >= 0
    np.maximum.at(largest, frames.parent[nested], length[nested])
    return np.asarray(largest < WRAPPER * length)


def loader_lane(seen: Attributed, begin: float, end: float, names: Names) -> Lane | None:
    """When a thread was inside the data loader."""
    table = seen.trace.host[Activity.INPUT]
    rows = np.flatnonzero((table["end"] > begin) & (table["start"] < end))
    label = names.of(seen.trace.host_names, table["name"][rows])
    kind, level = np.full(len(rows), _KIND["input"]), np.zeros(len(rows), dtype=np.int64)
    return lane("data loader", Slices(table["start"][rows], table["end"][rows], label, kind, level), begin, end)


def _runtime(name: str, host: HostDetail, thread: int, begin: float, end: float, names: Names) -> Lane | None:
    """The outermost runtime calls of a thread in one row, however deep within operators they are made."""
    nest = host.runtime(thread)
    outermost = nest.parent < 0
    return _nested(f"{name}, runtime calls", host, nest, 1, begin, end, names, outermost)


def _nested(
    name: str,
    host: HostDetail,
    nest: Nest,
    levels: int,
    begin: float,
    end: float,
    names: Names,
    wanted: Array | None = None,
) -> Lane | None:
    if wanted is not None:  # without what spans everything, the rest moves up
        rows = np.flatnonzero(wanted)
        kept = Nest(nest.rows[rows], nest.start[rows], nest.end[rows], _reparented(nest.parent, wanted))
        nest = kept
    level = nest.levels()
    chosen = np.flatnonzero((level < DEEPEST) & (nest.end > begin) & (nest.start < end))
    rows = nest.rows[chosen]
    label = names.of(host.detail.names, host.detail.name[rows])
    kind = _KIND_OF_ACTIVITY[host.detail.activity[rows]]
    shapes = host.detail.shape[rows]
    said = {shape: names.detail(host.detail.shapes[shape]) for shape in np.unique(shapes).tolist() if shape >= 0}
    detail = np.array([said.get(shape, -1) for shape in shapes.tolist()], dtype=np.int64)
    slices = Slices(nest.start[chosen], nest.end[chosen], label, kind, level[chosen], detail=detail)
    return lane(name, slices, begin, end, levels)


def _reparented(parent: Integers, wanted: Array) -> Integers:
    """Parents among the wanted ranges: the nearest wanted ancestor of each, as a place among the wanted."""
    place = (np.cumsum(wanted) - 1).tolist()
    chosen = wanted.tolist()
    nearest: list[int] = []  # of each range; parents come before their children
    for above in parent.tolist():
        nearest.append(-1 if above < 0 else place[above] if chosen[above] else nearest[above])
    return np.array(nearest, dtype=np.int64)[wanted]


def _touches(nest: Nest, begin: float, end: float) -> bool:
    return bool(((nest.end > begin) & (nest.start < end)).any())
