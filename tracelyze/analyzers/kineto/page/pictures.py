"""The chart of where each step of a trace went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.attribution import CAUSE_TEXT, CAUSES
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.timeline.table import Floats
from tracelyze.diagnosis import KINDS, Chart, Line

MOST_BARS: Final = 200
_WORK: Final = (
    ("computing", "compute"),
    ("communication, not hidden", "communication"),
    ("copies, not hidden", "copy"),
)
CAUSE_KINDS: Final = {name: f"{name}-call" if name in ("communication", "copy") else name for name in CAUSES}
"""What a colour stands for, by cause of idle time: a host inside such a call is not the work itself."""

_LEAST_SHARE: Final = 0.01
"""Causes below this share of the whole are drawn together as one part."""


def step_chart(summary: TraceSummary, rank_in_title: bool, waits: Floats | None = None) -> Chart | None:
    """Each step as a stack of what its time went into, in milliseconds; None if the trace has no steps.

    More than 200 steps are drawn as means over as many runs of neighbouring steps. `waits`: how much of each step's
    communication is a wait for ranks that arrive later, where that is known.
    """
    parts = _parts(summary, waits)
    if not parts or not len(summary.duration):
        return None
    groups = np.array_split(np.arange(len(summary.duration)), min(MOST_BARS, len(summary.duration)))
    title = "Where each step went" + (f", rank {summary.rank}" if rank_in_title else "")
    drawn = _worth_drawing(parts, summary.window)
    return Chart(
        title=title,
        x_label=f"step (found by {summary.steps_from})",
        y_label="ms",
        over="profiled-steps",
        unit="ms",
        x=[float(summary.number[group[0]]) for group in groups],
        lines=[_line(name, kind, [float(values[g].mean()) for g in groups]) for name, kind, values in drawn],
    )


def rank_chart(summaries: Sequence[TraceSummary], waits: Mapping[str, Floats]) -> Chart | None:
    """The mean step of each rank as a stack, in milliseconds; None if fewer than two ranks have steps."""
    sums: dict[int, dict[tuple[str, str], float]] = {}
    steps: dict[int, int] = {}
    for summary in summaries:
        parts = _parts(summary, waits.get(summary.path))
        if parts and len(summary.duration):
            own = sums.setdefault(summary.rank, {})
            steps[summary.rank] = steps.get(summary.rank, 0) + len(summary.duration)
            for name, kind, values in parts:
                own[name, kind] = own.get((name, kind), 0.0) + float(values.sum())
    if len(sums) < 2:
        return None
    ranks = sorted(sums)[:MOST_BARS]
    keys = dict.fromkeys(key for rank in ranks for key in sums[rank])
    parts = [(*key, np.array([sums[rank].get(key, 0.0) / steps[rank] for rank in ranks])) for key in keys]
    drawn = _worth_drawing(parts, float(sum(values.sum() for _, _, values in parts)))
    lines = [_line(name, kind, values.tolist()) for name, kind, values in drawn]
    title = "Where the mean step of each rank went"
    places = [float(rank) for rank in ranks]
    return Chart(title, "rank", "ms", places, lines, shows="ranks", over="ranks", unit="ms")


def _line(name: str, kind: str, values: list[float]) -> Line:
    return Line(name, [round(value / 1e3, 4) for value in values], "bars", kind)


def _parts(summary: TraceSummary, waits: Floats | None) -> list[tuple[str, str, Floats]]:
    """Name, kind and microseconds (shape [steps]) of everything that the steps consist of."""
    device = summary.device
    if device is not None:
        worked = (device.compute, device.exposed_communication, device.exposed_copy)
        parts = [(*which, time) for which, time in zip(_WORK, worked, strict=True)]
        if waits is not None:
            waited = np.minimum(waits, device.exposed_communication)
            parts[1] = (*_WORK[1], device.exposed_communication - waited)
            parts.insert(2, (KINDS["communication-wait"], "communication-wait", waited))
        causes, idle = device.causes, "idle: "
    elif summary.host is not None:
        parts, causes, idle = [], summary.host, ""
    else:
        return []
    order = np.argsort(-causes.sum(axis=0), kind="stable").tolist()
    return [
        *parts,
        *((idle + CAUSE_TEXT[CAUSES[index]], CAUSE_KINDS[CAUSES[index]], causes[:, index]) for index in order),
    ]


def _worth_drawing(parts: list[tuple[str, str, Floats]], whole: float) -> list[tuple[str, str, Floats]]:
    """The parts without the empty ones; idle causes below one percent of the whole as one."""
    drawn, small = [], np.zeros(len(parts[0][2]))
    for name, kind, values in parts:
        if (name, kind) in _WORK or values.sum() >= _LEAST_SHARE * max(whole, 1e-9):
            drawn.append((name, kind, values))
        else:
            small = small + values
    idle = "idle: " if any(name.startswith("idle: ") for name, _, _ in parts) else ""
    drawn.append((f"{idle}other causes", "", small))
    return [(name, kind, values) for name, kind, values in drawn if values.any()]
