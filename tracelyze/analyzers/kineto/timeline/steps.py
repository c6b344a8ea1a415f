"""Finding the training steps of a trace: from the profiler's own marks, or from what repeats once per step."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.timeline.categories import STEP_MARK, Activity
from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Integers, Table, median, slices
from tracelyze.analyzers.kineto.timeline.trace import Trace

FEWEST_MARKS: Final = 3
"""Marks that it takes to speak of repetition where the profiler did not number the steps itself."""

RUN_AHEAD: Final = 0.5
"""Share of the window by which the device may end later than the host, before most work lies outside of it."""

STEPS_AHEAD: Final = 2
"""Steps by which the device may be behind the host, before no step of the host's clock holds its own work."""

_NUMBERED: Final = re.compile(
    r"^\W*(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?|batch)[ _#:-]*(\d+)\W*$", re.IGNORECASE
)
_EVEN: Final = 0.25
"""Largest spread (MAD over median) of the distances between marks that are taken for the same point of each step."""

_APART: Final = 5.0
"""Times that a batch takes longer than what lies between the marks at its end, where marks come in bursts."""

_IN_BURSTS: Final = 0.3
"""Share of a batch's launches, at most, that lies between two marks of one burst."""

_FRAME: Final = re.compile(r"\.py\(\d+\): |^<built-in ")
_PART: Final = 0.1
_MOSTLY: Final = 0.5
"""Of the time, and of the ranges: what a range is that stands for a step."""

_LONGEST_SEQUENCE: Final = 200_000
_MOST_NAMES: Final = 300
"""Kernels, and names, that are looked at in the search for what repeats."""


@dataclass(frozen=True)
class Steps:
    """Steps in order: `number`, `start` and `end` (microseconds), shape [steps]; they do not overlap.

    `source`: what they were found by, for people. `thread`: the host thread they run on, -1 if unknown.
    `counted`: False if this is one window over everything, about which nothing can be said per step.
    """

    source: str
    number: Integers
    start: Floats
    end: Floats
    thread: int
    counted: bool = True

    def __len__(self) -> int:
        return len(self.start)


def find_steps(trace: Trace) -> Steps | None:
    """The steps of the trace by the first of the ways that works; None if it holds neither host nor device activity."""
    return (
        _profiler_steps(trace)
        or _optimizer_steps(trace)
        or _between(
            trace,
            Activity.INPUT,
            r"^enumerate\(DataLoader\)|dataloader\.py\(\d+\): __next__",
            "batches from the loader",
        )
        or _between(trace, Activity.OPTIMIZER, r"^Optimizer\.zero_grad", "zero_grad calls")
        or _numbered_annotations(trace)
        or _repeated_annotation(trace)
        or _repeated_kernels(trace)
        or _whole(trace)
    )


def as_executed(trace: Trace, steps: Steps, ran: Executed | None) -> Steps:
    """The steps as the device ran them, where the host ran so far ahead that its own clock says little; else `steps`.

    `ran`: what :func:`on_device_clock` says of them.
    """
    if ran is None:
        return steps
    window = steps.end[-1] - steps.start[0]
    late = float(trace.device["end"].max()) - steps.end[-1]
    if ran.behind <= STEPS_AHEAD * window / len(steps) and late <= RUN_AHEAD * window:
        return steps
    return replace(steps, source=f"{steps.source}, as executed by the device", start=ran.start, end=ran.end)


@dataclass(frozen=True)
class Executed:
    """Steps on the device: from the first work that was launched in one to that of the next. Shapes [steps].

    The last one ends with its own work, and not before the host is done with it. `behind`: microseconds by which the
    work of some step ends later than the host's step, at most.
    """

    start: Floats
    end: Floats
    behind: float


def on_device_clock(trace: Trace, steps: Steps, launch_of: Integers) -> Executed | None:
    """The steps on the device, None where they are not known."""
    device = trace.device
    if not steps.counted or not len(device):
        return None
    first, last = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    for part in slices(len(device)):
        linked = launch_of[part] >= 0
        launched = trace.launches["start"][launch_of[part][linked]]
        home = np.searchsorted(steps.start, launched, side="right") - 1
        inside = (home >= 0) & (launched <= steps.end[np.maximum(home, 0)])
        np.minimum.at(first, home[inside], device["start"][part][linked][inside])
        np.maximum.at(last, home[inside], device["end"][part][linked][inside])
    if not np.isfinite(first).all() or (np.diff(first) <= 0).any():
        return None
    end = np.append(first[1:], max(last[-1], steps.end[-1]))
    return Executed(first, end, float((last - steps.end).max()))


def _profiler_steps(trace: Trace) -> Steps | None:
    """ProfilerStep#N on the thread that has most of them."""
    marks = trace.host[Activity.STEP]
    if not len(marks):
        return None
    rows = np.flatnonzero(marks["thread"] == np.bincount(marks["thread"]).argmax())
    matches = [STEP_MARK.match(trace.host_names[name]) for name in marks["name"][rows]]
    number = np.array([int(match.group(1)[:15]) if match else 0 for match in matches], dtype=np.int64)
    return _ranges("ProfilerStep", number, marks, rows)


def _optimizer_steps(trace: Trace) -> Steps | None:
    """From one optimizer step to the next; where an optimizer steps several times per batch, from batch to batch."""
    loader = _between(
        trace, Activity.INPUT, r"^enumerate\(DataLoader\)|dataloader\.py\(\d+\): __next__", "batches from the loader"
    )
    optimizer = _between(trace, Activity.OPTIMIZER, r"^Optimizer\.step", "optimizer steps")
    if loader and optimizer and len(optimizer) + 1 >= 2 * (len(loader) + 1):
        return loader
    return optimizer


def _between(trace: Trace, activity: Activity, pattern: str, source: str) -> Steps | None:
    """Steps from the end of one range to the end of the next, of the most frequent name that matches."""
    table = trace.host[activity]
    wanted = np.array([bool(re.search(pattern, name)) for name in trace.host_names], dtype=bool)
    if not len(table) or not wanted[table["name"]].any():
        return None
    candidates = np.flatnonzero(wanted[table["name"]])
    name = np.bincount(table["name"][candidates]).argmax()
    rows = candidates[table["name"][candidates] == name]
    thread = int(np.bincount(table["thread"][rows]).argmax())
    ends = _last_of_bursts(trace, _outer_ends(table, rows[table["thread"][rows] == thread]))
    if len(ends) < FEWEST_MARKS:
        return None
    return _anchored(source, ends, thread)


def _outer_ends(table: Table, rows: Array) -> Floats:
    """Ends of the ranges that lie within no other of them, in order."""
    order = rows[np.lexsort((-table["end"][rows], table["start"][rows]))]
    ends = table["end"][order]
    reach = np.maximum.accumulate(ends)
    return np.asarray(ends[np.concatenate(([True], ends[1:] > reach[:-1]))])


def _last_of_bursts(trace: Trace, times: Floats) -> Floats:
    """Of marks that come in bursts of equal size, as of several optimizers at the end of each batch, the last of each.

    Between the marks of a burst hardly anything is launched, or computed: single slow steps make no bursts of the rest.
    """
    apart = np.diff(times)
    ordered = np.sort(apart)
    if len(apart) < 2 * FEWEST_MARKS or ordered[0] <= 0:
        return times
    rise = ordered[1:] / ordered[:-1]
    if rise.max() < _APART:
        return times
    wide = np.flatnonzero(apart > ordered[int(rise.argmax())])
    sizes = np.diff(wide)
    if not len(sizes) or sizes.min() < 2 or (sizes != sizes[0]).any() or wide[0] >= sizes[0]:
        return times
    work = np.sort(trace.launches["start"] if len(trace.launches) else trace.host[Activity.OPERATOR]["start"])
    held = np.diff(np.searchsorted(work, times))
    if median(np.delete(held, wide)) > _IN_BURSTS * median(held[wide]):
        return times
    complete = len(times) - 1 - wide[-1] == sizes[0]
    return times[np.append(wide, len(times) - 1) if complete else wide]


def _anchored(source: str, times: Floats, thread: int) -> Steps:
    number = np.arange(1, len(times), dtype=np.int64)
    return Steps(source, number, times[:-1].copy(), times[1:].copy(), thread)


def _numbered_annotations(trace: Trace) -> Steps | None:
    """Annotations such as "train_step 12", each a step of its own."""
    table = trace.host[Activity.PYTHON]
    matches = [_NUMBERED.match(name) for name in trace.host_names]
    numbers = np.array([int(match.group(1)[:15]) if match else -1 for match in matches], dtype=np.int64)
    if not len(table) or not (numbers[table["name"]] >= 0).any():
        return None
    rows = np.flatnonzero(numbers[table["name"]] >= 0)
    rows = rows[table["thread"][rows] == np.bincount(table["thread"][rows]).argmax()]
    if len(rows) < FEWEST_MARKS:
        return None
    return _ranges("numbered annotations", numbers[table["name"][rows]], table, rows)


def _repeated_annotation(trace: Trace) -> Steps | None:
    """From start to start of the rarest annotation or function of the script that recurs evenly over the trace."""
    table = trace.host[Activity.PYTHON]
    extent = _extent(trace)
    if not len(table) or extent is None:
        return None
    names, threads = table["name"], table["thread"]
    for name in _rarest(names):
        rows = np.flatnonzero(names == name)
        if (threads[rows] != threads[rows[0]]).any():
            continue
        starts = np.sort(table["start"][rows])
        if _FRAME.search(trace.host_names[name]) and not _does_something(trace, table, rows):
            continue
        if _evenly(starts) and starts[-1] - starts[0] >= 0.5 * (extent[1] - extent[0]):
            return _anchored(f"repetitions of {trace.host_names[name]}", starts, int(threads[rows[0]]))
    return None


def _does_something(trace: Trace, table: Table, rows: Array) -> bool:
    """Whether a function is a part of its step worth the name: most launch work, or they fill a tenth of the time.

    Small Python calls (a counter, a property) recur as evenly as steps do, and may do so twice a step.
    """
    start, end = table["start"][rows], table["end"][rows]
    filled = float((end - start).sum()) >= _PART * float(end.max() - start.min())
    work = np.sort(trace.launches["start"] if len(trace.launches) else trace.host[Activity.OPERATOR]["start"])
    return filled or float((np.searchsorted(work, end) > np.searchsorted(work, start)).mean()) > _MOSTLY


def _repeated_kernels(trace: Trace) -> Steps | None:
    """From start to start of the rarest kernel that recurs at a constant distance in the sequence of kernels."""
    device = trace.device
    if len(device) < 10 * FEWEST_MARKS:
        return None
    queue = int(np.bincount(device["queue"]).argmax())
    rows = np.flatnonzero(device["queue"] == queue)
    rows = rows[np.argsort(device["start"][rows], kind="stable")][:_LONGEST_SEQUENCE]
    names = device["name"][rows]
    for name in _rarest(names):
        places = np.flatnonzero(names == name)
        distance = np.diff(places)
        period = median(distance)
        steady = period >= 10 and float(np.abs(distance - period).max()) <= 0.02 * period
        if steady and places[-1] - places[0] >= 0.5 * len(names):
            starts = device["start"][rows[places]]
            return _anchored("repetitions of a sequence of kernels", starts, _busiest_thread(trace))
    return None


def _whole(trace: Trace) -> Steps | None:
    extent = _extent(trace)
    if extent is None:
        return None
    start, end = np.array([extent[0]]), np.array([extent[1]])
    return Steps("the whole trace", np.zeros(1, dtype=np.int64), start, end, _busiest_thread(trace), counted=False)


def _ranges(source: str, number: Integers, table: Table, rows: Array) -> Steps:
    """Ranges as steps: in order, without overlap; a short pause up to the next one belongs to the step before."""
    order = np.lexsort((-table["end"][rows], table["start"][rows]))
    number, start, end = number[order], table["start"][rows][order], table["end"][rows][order]
    fresh = np.concatenate(([True], end[1:] > np.maximum.accumulate(end)[:-1]))  # not one within another
    number, start, end = number[fresh], start[fresh].copy(), end[fresh].copy()
    following = np.append(start[1:], np.inf)
    pause = following - end
    end = np.where(
        pause < 0.5 * median(end - start), np.minimum(following, np.where(np.isinf(following), end, following)), end
    )
    return Steps(source, number, start, end, int(table["thread"][rows[0]]))


def _rarest(names: Integers) -> list[int]:
    """Names that occur often enough to mark steps, the rarest first; at most _MOST_NAMES of them."""
    counts = np.bincount(names)
    order = np.argsort(counts, kind="stable")
    return [int(name) for name in order[counts[order] >= FEWEST_MARKS][:_MOST_NAMES]]


def _evenly(times: Floats) -> bool:
    distance = np.diff(times)
    middle = median(distance)
    return middle > 0 and median(np.abs(distance - middle)) <= _EVEN * middle


def _extent(trace: Trace) -> tuple[float, float] | None:
    """First start and last end of all device work, or of all host activity where there is none."""
    tables = [trace.device] if len(trace.device) else [table for table in trace.host.values() if len(table)]
    if not tables:
        return None
    return min(float(table["start"].min()) for table in tables), max(float(table["end"].max()) for table in tables)


def _busiest_thread(trace: Trace) -> int:
    """The thread that launches most, or has most operators."""
    if len(trace.launches):
        return int(np.bincount(trace.launches["thread"]).argmax())
    operators = trace.host[Activity.OPERATOR]
    return int(np.bincount(operators["thread"]).argmax()) if len(operators) else -1
