"""Sums over a trace: kernels by name, device time by operator, blocking calls with the script's line behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.attribution import Work
from tracelyze.analyzers.kineto.timeline import intervals
from tracelyze.analyzers.kineto.timeline.categories import Activity, Kind
from tracelyze.analyzers.kineto.timeline.steps import Steps
from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Integers, groups, most_frequent, slices
from tracelyze.analyzers.kineto.timeline.trace import Trace

MOST_ENTRIES: Final = 50
_PAGEABLE: Final = re.compile(r"Pageable", re.IGNORECASE)
_PINNED: Final = re.compile(r"Pinned", re.IGNORECASE)
_FRAME: Final = re.compile(r"^(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.*)$")
_MOST_LOOKED_UP: Final = 20_000


@dataclass(frozen=True)
class KernelTotal:
    """All runs of one kernel. `kind`: compute, communication or copy."""

    name: str
    kind: str
    count: int
    time_us: float


@dataclass(frozen=True)
class OperatorTotal:
    """The device time that was launched from within one outermost operator."""

    name: str
    launches: int
    time_us: float


@dataclass(frozen=True)
class CallTotal:
    """All calls of one runtime function within the steps. `file` is empty where no Python stack was recorded."""

    name: str
    count: int
    time_us: float
    file: str = ""
    line: int = 0
    function: str = ""
    operator: str = ""


@dataclass(frozen=True)
class PageableCopies:
    """Copies from or to pageable host memory within the steps. `known`: whether the trace shows the kind of memory."""

    known: bool
    count: int
    time_us: float
    exposed_us: float


def kernel_totals(trace: Trace, work: Work) -> list[KernelTotal]:
    """The device activities with most time."""
    device = trace.device
    if not len(device):
        return []
    size = len(trace.device_names)
    time, count = np.zeros(size), np.zeros(size, dtype=np.int64)
    talks, computes = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    for part in slices(len(device)):
        names, duration = device["name"][part], device["end"][part] - device["start"][part]
        time += np.bincount(names, duration, size)
        count += np.bincount(names, minlength=size)
        talks[names[work.communication[part]]] = True
        computes[names[work.computation[part]]] = True
    return [
        KernelTotal(
            trace.device_names[name],
            "communication" if talks[name] else "compute" if computes[name] else "copy",
            int(count[name]),
            round(float(time[name]), 3),
        )
        for name in np.argsort(-time, kind="stable")[:MOST_ENTRIES]
    ]


def operator_totals(trace: Trace, launch_of: Integers) -> list[OperatorTotal]:
    """The outermost operators whose kernels took most device time."""
    device, operators, size = trace.device, trace.host[Activity.OPERATOR], len(trace.host_names)
    if not len(operators):
        return []
    time, count = np.zeros(size), np.zeros(size, dtype=np.int64)
    for part in slices(len(device)):
        linked = launch_of[part] >= 0
        launches = launch_of[part][linked]
        times, thread = trace.launches["start"][launches], trace.launches["thread"][launches]
        home = enclosing(trace, Activity.OPERATOR, times, thread)
        inside = home >= 0
        names = operators["name"][home[inside]]
        duration = (device["end"][part] - device["start"][part])[linked][inside]
        time += np.bincount(names, duration, size)
        count += np.bincount(names, minlength=size)
    best = [name for name in np.argsort(-time, kind="stable")[:MOST_ENTRIES] if count[name]]
    return [OperatorTotal(trace.host_names[name], int(count[name]), round(float(time[name]), 3)) for name in best]


def pageable_copies(trace: Trace, steps: Steps, work: Work) -> PageableCopies:
    """Copies that use pageable memory: how many lie in the steps, how long they take, and how much no kernel hides."""
    device = trace.device
    pageable = np.array([bool(_PAGEABLE.search(name)) for name in trace.device_names], dtype=bool)
    known = bool(pageable.any()) or any(_PINNED.search(name) for name in trace.device_names)
    if not len(device) or not len(steps) or not pageable.any():
        return PageableCopies(known, 0, 0.0, 0.0)
    start, end = device["start"], device["end"]
    copies = np.flatnonzero(device["kind"] == Kind.COPY)
    within = (start[copies] >= steps.start[0]) & (start[copies] < steps.end[-1])
    chosen = copies[within & pageable[device["name"][copies]]]
    work_done = intervals.merged(start, end, work.communication | work.computation, 1 << 16)
    hidden = sum(float(intervals.covered(part, start[chosen], end[chosen]).sum()) for part in work_done)
    time = float((end[chosen] - start[chosen]).sum())
    return PageableCopies(known, len(chosen), round(time, 3), round(time - hidden, 3))


def call_totals(trace: Trace, activity: Activity, steps: Steps) -> list[CallTotal]:
    """Calls of one class within the steps, by name, line of the script and outermost operator, most time first."""
    table = trace.host[activity]
    if not len(table) or not len(steps):
        return []
    rows = np.flatnonzero((table["start"] >= steps.start[0]) & (table["start"] < steps.end[-1]))
    duration = (table["end"] - table["start"])[rows]
    looked_up = rows[:_MOST_LOOKED_UP]
    times, thread = table["start"][looked_up], table["thread"][looked_up]
    behind = np.full((len(rows), 3), -1, dtype=np.int64)
    behind[:, 0] = table["name"][rows]
    frame = _innermost(trace, Activity.PYTHON, times, thread)
    operator = enclosing(trace, Activity.OPERATOR, times, thread)
    behind[: len(looked_up), 1] = np.where(frame >= 0, _names(trace, Activity.PYTHON, frame), -1)
    behind[: len(looked_up), 2] = np.where(operator >= 0, _names(trace, Activity.OPERATOR, operator), -1)
    keys, group = groups(behind)
    count, time = np.bincount(group), np.bincount(group, duration)
    order = np.argsort(-time, kind="stable")[:MOST_ENTRIES]
    return [_call(trace, keys[index].tolist(), int(count[index]), float(time[index])) for index in order]


def calls_per_step(trace: Trace, activity: Activity, steps: Steps) -> Integers:
    """How many ranges of one class begin in each step, shape [steps]."""
    start = trace.host[activity]["start"]
    home = np.searchsorted(steps.start, start, side="right") - 1
    inside = (home >= 0) & (start < steps.end[np.maximum(home, 0)]) if len(steps) else np.zeros(len(start), dtype=bool)
    counts: Integers = np.bincount(home[inside], minlength=len(steps))
    return counts


def _call(trace: Trace, key: list[int], count: int, time: float) -> CallTotal:
    name, frame, operator = key
    place = _FRAME.match(trace.host_names[frame]) if frame >= 0 else None
    return CallTotal(
        name=trace.host_names[name],
        count=count,
        time_us=round(time, 3),
        file=place["file"] if place else "",
        line=int(place["line"][:9]) if place else 0,
        function=place["function"] if place else "",
        operator=trace.host_names[operator] if operator >= 0 else "",
    )


def _names(trace: Trace, activity: Activity, rows: Integers) -> Array:
    names = trace.host[activity]["name"]
    return names[np.maximum(rows, 0)] if len(names) else np.full(len(rows), -1)


def enclosing(trace: Trace, activity: Activity, times: Floats, thread: Array) -> Integers:
    """The range of a class without nesting that holds each time on its thread, -1 for none, shape [times]."""
    table = trace.host[activity]
    found = np.full(len(times), -1, dtype=np.int64)
    for value in most_frequent(thread):
        own = np.flatnonzero(table["thread"] == value)
        if not len(own):
            continue
        own = own[np.argsort(table["start"][own], kind="stable")]
        mine = np.flatnonzero(thread == value)
        place = np.searchsorted(table["start"][own], times[mine], side="right") - 1
        candidate = own[np.maximum(place, 0)]
        found[mine] = np.where((place >= 0) & (table["end"][candidate] >= times[mine]), candidate, -1)
    return found


def _innermost(trace: Trace, activity: Activity, times: Floats, thread: Array) -> Integers:
    """The innermost range of a class with nesting that holds each time on its thread, -1 for none, shape [times].

    The last range to start before the time is taken if it holds the time; otherwise the ranges before it, up to 64.
    """
    table = trace.host[activity]
    found = np.full(len(times), -1, dtype=np.int64)
    for value in most_frequent(thread):
        own = np.flatnonzero(table["thread"] == value)
        if not len(own):
            continue
        own = own[np.lexsort((-table["end"][own], table["start"][own]))]
        mine = np.flatnonzero(thread == value)
        place = np.searchsorted(table["start"][own], times[mine], side="right") - 1
        for _ in range(64):
            open_ = np.flatnonzero((place >= 0) & (found[mine] < 0))
            if not len(open_):
                break
            candidate = own[place[open_]]
            holds = table["end"][candidate] >= times[mine[open_]]
            found[mine[open_[holds]]] = candidate[holds]
            place[open_[~holds]] -= 1
    return found
