"""Where each step's time went on one device: work by kind, and every idle moment charged to what the host was doing.

A gap ends with the first device activity after it. Until that activity was launched the device could not have had it,
so that part of the gap is the host's, and what the launching thread and the thread of the steps were doing explains
it. What remains is the way from the launch to the device, or a wait for work on another stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto import intervals
from tracelyze.analyzers.kineto.categories import Activity
from tracelyze.analyzers.kineto.intervals import Ranges
from tracelyze.analyzers.kineto.steps import Steps
from tracelyze.analyzers.kineto.table import Array, Floats, Integers, Mask
from tracelyze.analyzers.kineto.trace import Trace

CAUSES: Final = (
    "input",
    "sync",
    "allocator",
    "copy",
    "communication",
    "checkpoint",
    "optimizer",
    "launch",
    "operator",
    "python",
    "unrecorded",
    "preparation",
    "device",
)
"""Why a device was idle. The first ten are classes of host activity in the order of :class:`categories.Activity`;
`unrecorded`: the trace shows nothing; `preparation`: host work of no special class before the first device work of a
step; `device`: already launched, on its way or waiting for other work of the device."""

CAUSE_TEXT: Final = {
    "input": "waiting for the data loader",
    "sync": "host waiting in a synchronisation",
    "allocator": "device memory allocation calls",
    "copy": "host inside copy calls",
    "communication": "host inside communication calls",
    "checkpoint": "saving or logging",
    "optimizer": "host code of the optimizer",
    "launch": "runtime calls that launch work",
    "operator": "host code of operators",
    "python": "Python code between operators",
    "unrecorded": "nothing recorded",
    "preparation": "host work before the first kernel of the step",
    "device": "launch latency or waiting on the device",
}

_GENERAL: Final = np.array([CAUSES.index(name) for name in ("launch", "operator", "python", "unrecorded")])
_PREPARATION: Final = CAUSES.index("preparation")
_DEVICE: Final = CAUSES.index("device")
_UNRECORDED: Final = CAUSES.index("unrecorded")
_DRAINING: Final = tuple(
    CAUSES.index(name) for name in ("sync", "copy", "optimizer", "launch", "operator", "python", "unrecorded", "device")
)
"""What would have been hidden behind queued work, had the host not waited for the device before."""

_SLICE: Final = 1 << 15
"""Gaps that are looked at together: bounds the memory that the union of host ranges takes."""

_SYNC_SLACK: Final = 20.0
"""Microseconds by which a synchronising call may return after the device ran dry and still be why it ran dry."""


@dataclass(frozen=True)
class Work:
    """Which device rows communicate, and which compute; the rest copies and fills. Shapes [device rows]."""

    communication: Mask
    computation: Mask


@dataclass(frozen=True)
class DeviceTime:
    """One device over the steps of a trace, in microseconds; arrays of shape [steps] unless said otherwise.

    `busy` = `compute` + `exposed_communication` + `exposed_copy`: communication that no computation hides, copies and
    fills that neither hides. `idle`: the rest of the step. `causes`: idle by cause, shape [steps, CAUSES].
    `after_sync`: idle in gaps that began while the host waited for the device, without what other causes explain.
    `longest_gap`: per cause the longest single gap and the step it lies in, shape [CAUSES, 2].
    `span`, `span_busy`: first to last activity of the device, whatever the steps are.
    """

    process: str
    activities: int
    duration: Floats
    busy: Floats
    compute: Floats
    communication: Floats
    exposed_communication: Floats
    exposed_copy: Floats
    causes: Floats
    after_sync: Floats
    longest_gap: Floats
    span: float
    span_busy: float
    communication_total: float
    overlapped_total: float

    @property
    def idle(self) -> Floats:
        """Idle time of each step, shape [steps]."""
        return self.duration - self.busy

    def cause(self, name: str) -> Floats:
        """Idle time of each step by one cause, shape [steps]."""
        return np.asarray(self.causes[:, CAUSES.index(name)])


class HostRanges:
    """The merged ranges of each class of host activity, by thread."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._merged: dict[tuple[Activity, int], Ranges] = {}

    def of(self, activity: Activity, thread: int) -> Ranges:
        """Ranges of one class on one thread."""
        key = (activity, thread)
        if key not in self._merged:
            table = self._trace.host[activity]
            own = table["thread"] == thread
            self._merged[key] = intervals.merge(table["start"][own], table["end"][own])
        return self._merged[key]

    def shares(self, start: Floats, end: Floats, threads: set[int]) -> Floats:
        """How much of each [start, end] each class explains, earlier ones first, shape [n, classes + 1].

        The last column is what no class covers.
        """
        shares = np.zeros((len(start), _UNRECORDED + 1))
        order = np.argsort(start, kind="stable")
        for first in range(0, len(order), _SLICE):
            rows = order[first : first + _SLICE]
            a, b = start[rows], end[rows]
            low, high = float(a.min()), float(b.max())
            seen, explained = intervals.EMPTY, np.zeros(len(rows))
            for activity in range(_UNRECORDED):
                own = [intervals.near(self.of(Activity(activity), thread), low, high) for thread in sorted(threads)]
                seen = intervals.union([seen, *own])
                reached = intervals.covered(seen, a, b)
                shares[rows, activity] = reached - explained
                explained = reached
            shares[rows, _UNRECORDED] = np.maximum(b - a - explained, 0.0)
        return shares


def launches_of(trace: Trace) -> Integers:
    """The launch of each device row by correlation, -1 where the trace has none, shape [device rows]."""
    correlation = trace.device["correlation"]
    known = trace.launches["correlation"]
    if not len(known):
        return np.full(len(correlation), -1, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], correlation), len(order) - 1)
    found = order[place]
    return np.where((known[found] == correlation) & (correlation >= 0), found, -1)


def device_time(
    trace: Trace, steps: Steps, process: str, rows: Array, launch_of: Integers, work: Work, host: HostRanges
) -> DeviceTime:
    """One device's time. `rows`: its device rows; `launch_of`: each device row's launch."""
    rows = rows[np.argsort(trace.device["start"][rows], kind="stable")]
    start, end = trace.device["start"][rows], trace.device["end"][rows]
    talks, computes = work.communication[rows], work.computation[rows]
    busy = intervals.merge(start, end)
    compute = intervals.merge(start[computes], end[computes])
    talking = intervals.merge(start[talks], end[talks])
    working = intervals.union([compute, talking])
    a, b = steps.start, steps.end
    computed, worked, filled = (intervals.covered(ranges, a, b) for ranges in (compute, working, busy))
    talked_total = intervals.length(talking)
    gaps = _gaps(busy, steps, start, launch_of[rows], trace)
    causes, after_sync, longest = _explain(gaps, steps, host, trace)
    return DeviceTime(
        process=process,
        activities=len(rows),
        duration=b - a,
        busy=filled,
        compute=computed,
        communication=intervals.covered(talking, a, b),
        exposed_communication=worked - computed,
        exposed_copy=filled - worked,
        causes=causes,
        after_sync=after_sync,
        longest_gap=longest,
        span=float(busy[1][-1] - busy[0][0]) if len(busy[0]) else 0.0,
        span_busy=intervals.length(busy),
        communication_total=talked_total,
        overlapped_total=talked_total - (intervals.length(working) - intervals.length(compute)),
    )


def host_time(steps: Steps, host: HostRanges) -> Floats:
    """What the thread of the steps did in each step, by class, shape [steps, CAUSES]: for traces without a device."""
    causes = np.zeros((len(steps), len(CAUSES)))
    causes[:, : _UNRECORDED + 1] = host.shares(steps.start, steps.end, {steps.thread})
    return causes


@dataclass(frozen=True)
class _Gaps:
    """Idle pieces, cut at the edges of the steps: place, step, the launch that ended the gap, all of shape [pieces].

    `opened`: where the whole gap began; `launch`: -1 where none is known; `leads`: the gap ends with the first work
    that was launched in its step.
    """

    start: Floats
    end: Floats
    step: Integers
    opened: Floats
    launch: Integers
    leads: Mask


def _gaps(busy: Ranges, steps: Steps, row_start: Floats, launch_of_row: Integers, trace: Trace) -> _Gaps:
    opened = np.concatenate(([-np.inf], busy[1]))
    closed = np.concatenate((busy[0], [np.inf]))
    first = np.searchsorted(steps.end, opened, side="right")
    last = np.searchsorted(steps.start, closed, side="left") - 1
    pieces = np.maximum(last - first + 1, 0)
    gap = np.repeat(np.arange(len(opened)), pieces)
    step = np.arange(len(gap)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[gap]
    start, end = np.maximum(opened[gap], steps.start[step]), np.minimum(closed[gap], steps.end[step])
    real = end > start
    gap, step, start, end = gap[real], step[real], start[real], end[real]
    launch = _next_launch(row_start, launch_of_row, closed)[gap]
    return _Gaps(start, end, step, opened[gap], launch, _leading(step, launch, steps, trace))


def _next_launch(row_start: Floats, launch_of_row: Integers, closed: Floats) -> Integers:
    """The launch behind the end of each gap: of the activity that ends it, or of the next one that has a launch."""
    count = len(row_start)
    linked = np.where(launch_of_row >= 0, np.arange(count), count)
    following = np.append(np.minimum.accumulate(linked[::-1])[::-1], count)
    row = following[np.searchsorted(row_start, closed, side="left")]
    return np.where(row < count, np.append(launch_of_row, -1)[row], -1)


def _leading(step: Integers, launch: Integers, steps: Steps, trace: Trace) -> Mask:
    """Whether the launch that ends a gap is the first one of the step in which the host made it."""
    leads = np.zeros(len(step), dtype=bool)
    moments = trace.launches["start"]
    if not len(moments) or not len(step):
        return leads
    known = launch >= 0
    home = np.searchsorted(steps.start, moments, side="right") - 1
    within = (home >= 0) & (moments <= steps.end[np.maximum(home, 0)])
    first = np.full(len(steps), np.inf)
    np.minimum.at(first, home[within], moments[within])
    leads[known] = moments[launch[known]] <= first[step[known]]
    return leads


def _explain(gaps: _Gaps, steps: Steps, host: HostRanges, trace: Trace) -> tuple[Floats, Floats, Floats]:
    """Idle by step and cause, idle after synchronisations by step, and the longest gap of each cause."""
    moments = trace.launches["start"]
    known = gaps.launch >= 0
    launched = np.full(len(gaps.start), np.inf)
    launched[known] = moments[gaps.launch[known]]
    handed_over = np.clip(launched, gaps.start, gaps.end)
    thread = np.full(len(gaps.start), steps.thread, dtype=np.int64)
    thread[known] = trace.launches["thread"][gaps.launch[known]]
    shares = np.zeros((len(gaps.start), len(CAUSES)))
    drained = np.zeros(len(gaps.start), dtype=bool)
    for value in np.unique(thread):
        mine = np.flatnonzero(thread == value)
        threads = {int(value), steps.thread}
        shares[mine, : _UNRECORDED + 1] = host.shares(gaps.start[mine], handed_over[mine], threads)
        syncs = intervals.union([host.of(Activity.SYNC, one) for one in sorted(threads)])
        reached = np.where(np.isfinite(gaps.opened[mine]), gaps.opened[mine], -1e300)
        drained[mine] = intervals.contains(syncs, reached) | intervals.contains(syncs, reached + _SYNC_SLACK)
    shares[:, _DEVICE] = gaps.end - handed_over
    general = shares[np.ix_(gaps.leads, _GENERAL)]
    shares[gaps.leads, _PREPARATION] = general.sum(axis=1)
    shares[np.ix_(gaps.leads, _GENERAL)] = 0.0
    causes = np.stack([_per_step(gaps, shares[:, index], steps) for index in range(len(CAUSES))], axis=1)
    blamed = np.where(drained, shares[:, _DRAINING].sum(axis=1), 0.0)
    longest: Floats = np.zeros((len(CAUSES), 2))
    if len(gaps.start):
        row = shares.argmax(axis=0)
        longest = np.stack([shares[row, np.arange(len(CAUSES))], steps.number[gaps.step[row]]], axis=1)
    return causes, _per_step(gaps, blamed, steps), longest


def _per_step(gaps: _Gaps, values: Floats, steps: Steps) -> Floats:
    return np.bincount(gaps.step, values, len(steps)).astype(np.float64)
