"""Tables of what took time: kernels with the operators and lines that launched them, operators with their lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.kernel_classes import class_of
from tracelyze.analyzers.kineto.attribution.kernel_names import short
from tracelyze.analyzers.kineto.attribution.summary import Attributed
from tracelyze.analyzers.kineto.page.host_detail import HostDetail
from tracelyze.analyzers.kineto.timeline.categories import STEP_MARK
from tracelyze.analyzers.kineto.timeline.table import Floats, Integers
from tracelyze.diagnosis import Listing
from tracelyze.formatting import percent, plural

ROWS: Final = 15
_DEEPEST: Final = 8
"""Levels of nesting through which an operator is looked for in its own inside, as recursive ones are."""


@dataclass(frozen=True)
class Launched:
    """Device work of the steps that were looked at twice: arrays of shape [activities].

    `name` into the trace's device names, `operator`: row of the detail that launched it, -1 where unknown.
    """

    name: Integers
    time: Floats
    operator: Integers


def launched(seen: Attributed, host: HostDetail, begin: float, end: float) -> Launched:
    """The device work that starts between two times, with the operators behind it."""
    device = seen.trace.device
    rows = np.flatnonzero((device["start"] >= begin) & (device["start"] < end))
    launch = seen.launch_of[rows]
    known = launch >= 0
    operator = np.full(len(rows), -1, dtype=np.int64)
    launches = seen.trace.launches
    if known.any():
        own = launch[known]
        operator[known] = host.operator_at(launches["start"][own], launches["thread"][own])
    return Launched(device["name"][rows], (device["end"] - device["start"])[rows], operator)


def kernels(seen: Attributed, host: HostDetail, work: Launched, looked_at: str) -> Listing | None:
    """The device activities with most time within all steps, and what launched them in the steps looked at."""
    device, steps, names = seen.trace.device, seen.steps, seen.trace.device_names
    inside = (device["start"] >= steps.start[0]) & (device["start"] < steps.end[-1])
    name = device["name"][inside]
    if not len(name):
        return None
    time = np.bincount(name, (device["end"] - device["start"])[inside], len(names))
    count = np.bincount(name, minlength=len(names))
    talks = np.bincount(name, seen.work.communication[inside], len(names)) > 0
    computes = np.bincount(name, seen.work.computation[inside], len(names)) > 0
    operators, lines = _behind(host, work)
    whole, per_step = max(float(time.sum()), 1e-9), _steps(seen)
    order = np.argsort(-time, kind="stable")
    order = order[count[order] > 0]
    shown = order[:ROWS]
    with_lines = any(lines.values())
    rows: list[list[float | int | str | None]] = []
    for index in shown.tolist():
        operator = operators.get(index, "")
        kind = "communication" if talks[index] else class_of(names[index], operator) if computes[index] else "copy"
        row: list[float | int | str | None] = [
            short(names[index]),
            kind,
            _per(count[index], per_step),
            round(float(time[index]) / per_step / 1e3, 4),
            round(float(time[index]) / whole, 4),
            round(float(time[index] / count[index]), 2),
            short(operator),
        ]
        rows.append([*row, lines.get(index, "")] if with_lines else row)
    unit = " per step" if seen.steps.counted else ""
    columns = [
        ("Kernel", "text"),
        ("class", "text"),
        (f"Calls{unit}", ""),
        (f"Time{unit}", "ms"),
        ("Of all device time", "share"),
        ("Mean", "µs"),
        ("launched by", "text"),
    ]
    rest = order[ROWS:]
    return Listing(
        "Kernels, copies and fills",
        f"Over {_of(seen)}. What launched them was looked up in {looked_at}.",
        [*columns, ("Python", "text")] if with_lines else columns,
        rows,
        [names[index] for index in shown.tolist()],
        f"and {len(rest):,} more, {percent(float(time[rest].sum()) / whole)} of the device time" if len(rest) else "",
    )


@dataclass(frozen=True)
class _OperatorTimes:
    """What each operator took in the steps looked at: arrays of shape [names of the detail], in microseconds."""

    total: Floats
    """On the host, without the time within itself, as a recursive one has."""
    own: Floats
    """On the host, without the operators that it calls."""
    count: Integers
    on_device: Floats
    """Of the work that it launched itself."""
    lines: dict[int, str]
    """The line with most of its own time, by operator."""


def _operator_times(host: HostDetail, work: Launched, begin: float, end: float) -> _OperatorTimes:
    detail = host.detail
    size = len(detail.names)
    total, own, count = np.zeros(size), np.zeros(size), np.zeros(size, dtype=np.int64)
    on_device = np.zeros(size)
    place, said = host.places()
    keys: list[Integers] = []
    times: list[Floats] = []
    for thread in host.threads:
        nest = host.calls(thread)
        chosen = (nest.start >= begin) & (nest.start < end)
        length = nest.end - nest.start
        nested = nest.parent >= 0
        alone = length - np.bincount(nest.parent[nested], length[nested], len(length))
        alone = np.maximum(alone, 0.0)
        name = detail.name[nest.rows]
        first = chosen & ~_within_itself(name, nest.parent)
        total += np.bincount(name[first], length[first], size)
        own += np.bincount(name[chosen], alone[chosen], size)
        count += np.bincount(name[chosen], minlength=size)
        located = chosen & (place[nest.rows] >= 0)
        keys.append(np.stack([name[located].astype(np.int64), place[nest.rows[located]]], axis=1))
        times.append(alone[located])
    linked = work.operator >= 0
    if linked.any():
        rows = work.operator[linked]
        on_device += np.bincount(detail.name[rows], work.time[linked], size)
        located = place[rows] >= 0
        keys.append(np.stack([detail.name[rows[located]].astype(np.int64), place[rows[located]]], axis=1))
        times.append(work.time[linked][located])
    return _OperatorTimes(total, own, count, on_device, _main_line(keys, times, said))


def operators(
    seen: Attributed, host: HostDetail, work: Launched, begin: float, end: float, steps: int
) -> Listing | None:
    """Operators and runtime calls with most time of their own, on host and device, in the steps looked at."""
    names, took = host.detail.names, _operator_times(host, work, begin, end)
    own = took.own
    by_time: list[int] = np.argsort(-(own + took.on_device), kind="stable").tolist()
    ranked = [index for index in by_time if took.count[index] and not STEP_MARK.match(names[index])]
    if not ranked:
        return None
    shown, rest = ranked[:ROWS], ranked[ROWS:]
    with_device, with_lines = bool(took.on_device.any()), bool(took.lines)
    table: list[list[float | int | str | None]] = []
    for index in shown:
        row: list[float | int | str | None] = [
            short(names[index]),
            _per(took.count[index], steps),
            round(float(own[index]) / steps / 1e3, 4),
            round(float(took.total[index]) / steps / 1e3, 4),
        ]
        row += [round(float(took.on_device[index]) / steps / 1e3, 4)] if with_device else []
        table.append([*row, took.lines.get(index, "")] if with_lines else row)
    unit = " per step" if seen.steps.counted else ""
    columns = [("Operator", "text"), (f"Calls{unit}", ""), (f"Host, itself{unit}", "ms"), (f"Host, in all{unit}", "ms")]
    columns += [(f"Device, itself{unit}", "ms")] if with_device else []
    share = percent(float(own[rest].sum()) / max(float(own.sum()), 1e-9)) if len(rest) else ""
    where = f"{plural(steps, 'step')}" if seen.steps.counted else "the stretch that was looked at"
    return Listing(
        "Operators and runtime calls",
        f"Over {where}. Itself: without the operators that it calls; device: the kernels that it launched itself.",
        [*columns, ("Python", "text")] if with_lines else columns,
        table,
        [names[index] for index in shown],
        f"and {len(rest):,} more, {share} of the host's time" if len(rest) else "",
    )


def _behind(host: HostDetail, work: Launched) -> tuple[dict[int, str], dict[int, str]]:
    """For each device name the operator, and the line of the script, that most of its time comes from."""
    linked = np.flatnonzero(work.operator >= 0)
    rows, name, time = work.operator[linked], work.name[linked].astype(np.int64), work.time[linked]
    place, said = host.places()
    by_operator = _main_line([np.stack([name, host.detail.name[rows]], axis=1)], [time], host.detail.names)
    located = place[rows] >= 0
    by_line = _main_line([np.stack([name[located], place[rows[located]]], axis=1)], [time[located]], said)
    return by_operator, by_line


def _main_line(keys: list[Integers], times: list[Floats], texts: list[str]) -> dict[int, str]:
    """For each first key the text of the second one with most time; how many others there are is said too."""
    pairs = np.concatenate(keys) if keys else np.zeros((0, 2), dtype=np.int64)
    if not len(pairs):
        return {}
    distinct, group = np.unique(pairs, axis=0, return_inverse=True)
    time = np.bincount(group.ravel(), np.concatenate(times))
    best: dict[int, tuple[int, int]] = {}
    for index in np.argsort(-time, kind="stable").tolist():
        first, second = distinct[index].tolist()
        best[first] = (best[first][0], best[first][1] + 1) if first in best else (second, 0)
    return {
        first: short_path(texts[second]) + (f" and {others} more" if others else "")
        for first, (second, others) in best.items()
    }


def short_path(place: str) -> str:
    """A place with at most the last three parts of its path: `.../models/resnet.py:89 forward`."""
    file, colon, rest = place.partition(".py:")
    parts = file.replace("\\", "/").split("/")
    return place if not colon or len(parts) <= 3 else f".../{'/'.join(parts[-2:])}{colon}{rest}"


def _within_itself(name: Integers, parent: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether a range lies in one of the same name, which has counted its time already."""
    inside = np.zeros(len(name), dtype=bool)
    above = parent.copy()
    for _ in range(_DEEPEST):
        known = above >= 0
        if not known.any():
            break
        inside[known] |= name[above[known]] == name[known]
        above[known] = parent[above[known]]
    return inside


def _steps(seen: Attributed) -> int:
    return max(len(seen.steps), 1)


def _of(seen: Attributed) -> str:
    if not seen.steps.counted:
        return "the whole trace"
    return f"all {plural(len(seen.steps), 'step')} of the trace" if len(seen.steps) > 1 else "the step of the trace"


def _per(count: int, steps: int) -> float | int:
    whole, rest = divmod(int(count), steps)
    return whole if not rest else round(int(count) / steps, 1)
