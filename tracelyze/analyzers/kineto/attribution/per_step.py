"""What each kernel, class of kernels and operator took in each step of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution import attribution, kernels
from tracelyze.analyzers.kineto.attribution.kernel_classes import class_of
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary, summarise_trace
from tracelyze.analyzers.kineto.attribution.totals import enclosing
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.kineto.timeline.categories import Activity
from tracelyze.analyzers.kineto.timeline.steps import Steps, as_executed, find_steps, on_device_clock
from tracelyze.analyzers.kineto.timeline.table import Floats, Integers
from tracelyze.analyzers.kineto.timeline.trace import Trace

COMMUNICATION: Final = "communication"
COPY: Final = "copies and fills"
UNKNOWN: Final = ""
MOST_CELLS: Final = 20_000_000
"""Kernels times steps that are kept apart, 8 bytes each."""


@dataclass(frozen=True)
class KernelTime:
    """One kernel, as launched by one outermost operator (empty if unknown). `time`: microseconds, shape [steps]."""

    name: str
    kind: str
    operator: str
    count: float
    time: Floats


@dataclass(frozen=True)
class Profile:
    """A trace summed up, and its device work by step."""

    summary: TraceSummary
    kernels: list[KernelTime]


def profile(path: Path | str, position: int = 0) -> Profile:
    """The profile of one trace file; `position` as in :func:`summarise_trace`. InputError for an unreadable file."""
    trace = read_trace(path)
    launch_of = attribution.launches_of(trace)
    steps = find_steps(trace)
    table: list[KernelTime] = []
    if steps is not None:
        executed = as_executed(trace, steps, on_device_clock(trace, steps, launch_of))
        table = kernel_times(trace, executed, launch_of, steps)
    return Profile(summarise_trace(trace, position), table)


def kernel_times(trace: Trace, steps: Steps, launch_of: Integers, marks: Steps | None = None) -> list[KernelTime]:
    """Device time by kernel and operator for each step.

    Work belongs to the step of `marks`, the steps as the host made them, in which it was launched; where its launch is
    not known, to the one of `steps` in which it starts on the device.
    """
    device, count = trace.device, len(steps)
    home = _home(steps, device["start"])
    if marks is not None and marks.counted and len(marks) == count:
        linked = launch_of >= 0
        home = (
            np.where(linked, _home(marks, trace.launches["start"][np.maximum(launch_of, 0)]), home)
            if linked.any()
            else home
        )
    rows = np.flatnonzero(home >= 0)
    if not len(rows):
        return []
    talks = kernels.communication_rows(trace, launch_of)
    computes = kernels.computing_rows(trace, talks)
    operator = _operators(trace, launch_of)
    named = np.stack([device["name"][rows].astype(np.int64), operator[rows], talks[rows], computes[rows]], axis=1)
    keys, group = np.unique(named, axis=0, return_inverse=True)
    group = group.ravel()
    length = (device["end"] - device["start"])[rows]
    largest = np.argsort(-np.bincount(group, length), kind="stable")[: max(1, MOST_CELLS // max(count, 1))]
    place = np.full(len(keys), -1)
    place[largest] = np.arange(len(largest))
    kept = place[group] >= 0
    cells = place[group[kept]] * count + home[rows][kept]
    sums = np.bincount(cells, length[kept], len(largest) * count).astype(np.float64)
    counts = np.bincount(group, minlength=len(keys))[largest]
    return [
        _kernel(trace, keys[key].tolist(), float(number) / count, own)
        for key, number, own in zip(largest, counts, sums.reshape(len(largest), count), strict=True)
    ]


def _home(steps: Steps, times: Floats) -> Integers:
    """The step in which each time lies, -1 for none."""
    home = np.searchsorted(steps.start, times, side="right") - 1
    return np.where((home >= 0) & (times < steps.end[np.maximum(home, 0)]), home, -1)


def _kernel(trace: Trace, key: list[int], count: float, time: Floats) -> KernelTime:
    name, operator, talks, computes = key
    text = trace.device_names[name]
    behind = trace.host_names[operator] if operator >= 0 else UNKNOWN
    kind = COMMUNICATION if talks else class_of(text, behind) if computes else COPY
    return KernelTime(text, kind, behind, count, time)


def _operators(trace: Trace, launch_of: Integers) -> Integers:
    """The outermost operator that launched each device row, -1 where unknown, shape [device rows]."""
    found = np.full(len(launch_of), -1, dtype=np.int64)
    names = trace.host[Activity.OPERATOR]["name"]
    rows = np.flatnonzero(launch_of >= 0)
    if len(rows) and len(names):
        launches = launch_of[rows]
        times, thread = trace.launches["start"][launches], trace.launches["thread"][launches]
        home = enclosing(trace, Activity.OPERATOR, times, thread)
        found[rows] = np.where(home >= 0, names[np.maximum(home, 0)], -1)
    return found
