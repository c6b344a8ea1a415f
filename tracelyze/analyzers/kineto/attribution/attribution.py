"""Where each step's time went on one device: work by kind, and all idle time charged to what the host was doing.

A gap ends with the first device activity after it. Until that activity was launched the device could not have had it,
so that part of the gap is the host's, and what the launching thread and the thread of the steps were doing explains
it. What remains is the way from the launch to the device, or a wait for work on another stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.late_work import LateWork
from tracelyze.analyzers.kineto.timeline import intervals, processes
from tracelyze.analyzers.kineto.timeline.categories import COVERAGE, Activity
from tracelyze.analyzers.kineto.timeline.intervals import Ranges
from tracelyze.analyzers.kineto.timeline.steps import Steps
from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Integers, Mask, most_frequent
from tracelyze.analyzers.kineto.timeline.trace import Trace

CAUSES: Final = (
    "garbage",
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
"""Why a device was idle. The first eleven are classes of host activity in the order of :class:`categories.Activity`;
`unrecorded`: the trace shows nothing; `preparation`: host work of no special class before the first device work of a
step; `device`: already launched, on its way or waiting for other work of the device."""

CAUSE_TEXT: Final = {
    "garbage": "Python's garbage collection",
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
"""Gaps that are looked at together: bounds the memory that explaining them takes."""

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
    `waited`: how long the threads that launch work were inside calls that may wait for the device.
    `late`: the activities on which an idle device was latest although they had been launched, and how long in all.
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
    waited: Floats
    span: float
    span_busy: float
    communication_total: float
    overlapped_total: float
    late: tuple[tuple[str, float], ...] = ()

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
            threads, start, end = table["thread"], table["start"], table["end"]
            if activity in COVERAGE:  # sorted by thread and time, so that a slice will do, which takes no memory
                own = slice(*np.searchsorted(threads, [thread, thread + 1]))
                ready = (start[own], end[own])
                apart = bool((ready[0][1:] >= ready[1][:-1]).all())
                self._merged[key] = ready if apart else intervals.merge(*ready)
            else:
                chosen = threads == thread
                self._merged[key] = intervals.merge(start[chosen], end[chosen])
        return self._merged[key]

    def shares(self, start: Floats, end: Floats, threads: set[int]) -> Floats:
        """How much of each [start, end] each class explains, earlier ones first, shape [n, classes + 1].

        The last column is what no class covers.
        """
        shares = np.zeros((len(start), _UNRECORDED + 1))
        if not len(start):
            return shares
        low, high = float(start.min()), float(end.max())
        seen, explained = intervals.EMPTY, np.zeros(len(start))
        for activity in range(_UNRECORDED):
            own = [intervals.near(self.of(Activity(activity), thread), low, high) for thread in sorted(threads)]
            seen = intervals.union([seen, *own])
            reached = intervals.covered(seen, start, end)
            shares[:, activity] = reached - explained
            explained = reached
        shares[:, _UNRECORDED] = np.maximum(end - start - explained, 0.0)
        return shares


def launches_of(trace: Trace) -> Integers:
    """The launch of each device row by correlation, -1 where the trace has none, shape [device rows].

    Where a file holds several processes (ranks merged into one), each has its own numbers from 1 on; then the launches
    of the device's own process count.
    """
    several = processes.several(trace)
    return processes.with_replays(
        trace, processes.own_launches(trace) if several else processes.launches_by_number(trace)
    )


def device_time(
    trace: Trace, steps: Steps, process: str, rows: Array | slice, launch_of: Integers, work: Work, host: HostRanges
) -> DeviceTime:
    """One device's time. `rows`: its device rows, in order; `launch_of`: each device row's launch."""
    start, end = trace.device["start"][rows], trace.device["end"][rows]
    talks, computes = work.communication[rows], work.computation[rows]

    def cover(chosen: Mask | None) -> tuple[Floats, float]:
        filled, total = np.zeros(len(steps)), 0.0
        for ranges in intervals.merged(start, end, chosen, _SLICE):
            filled += intervals.covered(ranges, steps.start, steps.end)
            total += intervals.length(ranges)
        return filled, total

    computed, compute_total = cover(computes)
    talked, talked_total = cover(talks)
    worked, worked_total = cover(talks | computes)
    filled, busy_total = cover(None)
    idle = _Idle.nothing(len(steps))
    idle.ends_with = LateWork(start, trace.device["name"][rows], len(trace.device_names))
    ends_with = _Launches(trace, steps, start, launch_of[rows])
    ended = -np.inf
    for ranges in intervals.merged(start, end, None, _SLICE):
        opened = np.append(ended, ranges[1][:-1])
        idle.add(_gaps(opened, ranges[0], steps, ends_with), steps, host, trace)
        ended = ranges[1][-1]
    idle.add(_gaps(np.array([ended]), np.array([np.inf]), steps, ends_with), steps, host, trace)
    return DeviceTime(
        process=process,
        activities=len(start),
        duration=steps.end - steps.start,
        busy=filled,
        compute=computed,
        communication=talked,
        exposed_communication=worked - computed,
        exposed_copy=filled - worked,
        causes=idle.causes,
        after_sync=idle.after_sync,
        waited=_waited(trace, steps, host),
        span=float(ended - start[0]) if len(start) else 0.0,
        span_busy=busy_total,
        communication_total=talked_total,
        overlapped_total=talked_total - (worked_total - compute_total),
        late=idle.ends_with.latest(trace.device_names),
    )


def _waited(trace: Trace, steps: Steps, host: HostRanges) -> Floats:
    """Time of each step inside synchronising and copying calls, on any thread that launches, shape [steps]."""
    threads = {steps.thread, *most_frequent(trace.launches["thread"], 8)}
    calls = [host.of(activity, thread) for activity in (Activity.SYNC, Activity.COPY) for thread in sorted(threads)]
    return intervals.covered(intervals.union(calls), steps.start, steps.end)


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


@dataclass(frozen=True)
class _Charged:
    """What explains each gap, in microseconds, arrays of shape [gaps] unless said otherwise."""

    shares: Floats  # how much of the gap each cause explains, shape [gaps, CAUSES]
    drained: Mask  # whether the gap began behind a synchronisation
    handed_over: Floats  # when the work that ends the gap was launched: from then on the wait is the device's


class _Launches:
    """Which launch stands behind the end of a gap, and which launches are the first of their step."""

    def __init__(self, trace: Trace, steps: Steps, row_start: Floats, launch_of_row: Integers) -> None:
        self.times = trace.launches["start"]
        self._row_start = row_start
        self._launch = launch_of_row
        self._linked = np.flatnonzero(launch_of_row >= 0).astype(np.int32)
        self.first = np.full(len(steps), np.inf)
        for part in range(0, len(self.times), _SLICE):
            times = self.times[part : part + _SLICE]
            home = np.searchsorted(steps.start, times, side="right") - 1
            within = (home >= 0) & (times <= steps.end[np.maximum(home, 0)])
            np.minimum.at(self.first, home[within], times[within])

    def behind(self, closed: Floats) -> Integers:
        """The launch of the activity that ends each gap, or of the next one that has a launch; -1 for none."""
        row = np.searchsorted(self._row_start, closed, side="left").astype(np.int32)
        place = np.searchsorted(self._linked, row)
        known = place < len(self._linked)
        launch: Integers = np.full(len(closed), -1, dtype=np.int64)
        launch[known] = self._launch[self._linked[place[known]]]
        return launch


def _gaps(opened: Floats, closed: Floats, steps: Steps, launches: _Launches) -> _Gaps:
    first = np.searchsorted(steps.end, opened, side="right")
    last = np.searchsorted(steps.start, closed, side="left") - 1
    pieces = np.maximum(last - first + 1, 0)
    gap = np.repeat(np.arange(len(opened)), pieces)
    step = np.arange(len(gap)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[gap]
    start, end = np.maximum(opened[gap], steps.start[step]), np.minimum(closed[gap], steps.end[step])
    real = end > start
    gap, step, start, end = gap[real], step[real], start[real], end[real]
    launch = launches.behind(closed)[gap]
    leads = launch >= 0
    first_of_step = launches.first[step[leads]]  # infinite where nothing was launched
    leads[leads] = np.isfinite(first_of_step) & (launches.times[launch[leads]] <= first_of_step)
    return _Gaps(start, end, step, opened[gap], launch, leads)


@dataclass
class _Idle:
    """Sums over gaps: idle by step and cause, idle after synchronisations by step."""

    causes: Floats
    after_sync: Floats
    ends_with: LateWork | None = None

    @staticmethod
    def nothing(steps: int) -> _Idle:
        return _Idle(np.zeros((steps, len(CAUSES))), np.zeros(steps))

    def add(self, gaps: _Gaps, steps: Steps, host: HostRanges, trace: Trace) -> None:
        """Charges some gaps to their causes."""
        count = len(gaps.start)
        if not count:
            return
        charged = _charged(gaps, steps, host, trace)
        for cause in range(len(CAUSES)):
            self.causes[:, cause] += np.bincount(gaps.step, charged.shares[:, cause], len(steps))
        if self.ends_with is not None:
            self.ends_with.add(gaps.end, charged.shares[:, _DEVICE])
        blamed = np.where(charged.drained, charged.shares[:, _DRAINING].sum(axis=1), 0.0)
        self.after_sync += np.bincount(gaps.step, blamed, len(steps))


def gaps_between(
    trace: Trace, steps: Steps, rows: Array | slice, launch_of: Integers, host: HostRanges, finest: float
) -> tuple[Floats, Floats, Integers]:
    """Every idle piece of one device within `steps`, in order, as a picture shows it: start, end, and the cause that
    explains most of it (into CAUSES), shape [pieces].

    Pieces longer than `finest` microseconds are cut, so that a picture shows where in a gap which cause was; a gap is
    cut as well where the work that ends it was launched.
    """
    start, end = trace.device["start"][rows], trace.device["end"][rows]
    busy = intervals.near(intervals.merge(start, end), float(steps.start[0]), float(steps.end[-1]))
    opened, closed = np.append(-np.inf, busy[1]), np.append(busy[0], np.inf)
    gaps = _cut(_gaps(opened, closed, steps, _Launches(trace, steps, start, launch_of[rows])), finest)
    if not len(gaps.start):
        return gaps.start, gaps.end, gaps.step
    charged = _charged(gaps, steps, host, trace)
    shares, handed_over = charged.shares, charged.handed_over
    shares[:, _DEVICE] = 0.0
    lead = shares.argmax(axis=1)
    starts, ends = np.concatenate([gaps.start, handed_over]), np.concatenate([handed_over, gaps.end])
    cause = np.concatenate([lead, np.full(len(lead), _DEVICE)])
    order = np.argsort(starts, kind="stable")
    order = order[ends[order] > starts[order]]
    return starts[order], ends[order], cause[order]


def _cut(gaps: _Gaps, finest: float) -> _Gaps:
    """The gaps in pieces of equal length, none of them longer than `finest`."""
    parts = np.maximum(np.ceil((gaps.end - gaps.start) / max(finest, 1e-9)), 1).astype(np.int64)
    row = np.repeat(np.arange(len(parts)), parts)
    place = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    piece = ((gaps.end - gaps.start) / parts)[row]
    start = gaps.start[row] + place * piece
    end = np.where(place + 1 == parts[row], gaps.end[row], start + piece)
    return _Gaps(start, end, gaps.step[row], gaps.opened[row], gaps.launch[row], gaps.leads[row])


def _charged(gaps: _Gaps, steps: Steps, host: HostRanges, trace: Trace) -> _Charged:
    count = len(gaps.start)
    known = gaps.launch >= 0
    launched, thread = np.full(count, np.inf), np.full(count, steps.thread, dtype=np.int64)
    launched[known] = trace.launches["start"][gaps.launch[known]]
    thread[known] = trace.launches["thread"][gaps.launch[known]]
    handed_over = np.clip(launched, gaps.start, gaps.end)
    shares, drained = np.zeros((count, len(CAUSES))), np.zeros(count, dtype=bool)
    for value in most_frequent(thread):
        mine = np.flatnonzero(thread == value)
        threads = {int(value), steps.thread}
        shares[mine, : _UNRECORDED + 1] = host.shares(gaps.start[mine], handed_over[mine], threads)
        syncs = intervals.union([host.of(Activity.SYNC, one) for one in sorted(threads)])
        opened = gaps.opened[mine]
        drained[mine] = intervals.contains(syncs, opened) | intervals.contains(syncs, opened + _SYNC_SLACK)
    shares[:, _DEVICE] = gaps.end - handed_over
    explained = shares.sum(axis=1)
    shares[:, _UNRECORDED] += np.maximum(gaps.end - gaps.start - explained, 0.0)
    general = shares[np.ix_(gaps.leads, _GENERAL)]
    shares[gaps.leads, _PREPARATION] = general.sum(axis=1)
    shares[np.ix_(gaps.leads, _GENERAL)] = 0.0
    return _Charged(shares, drained, handed_over)
