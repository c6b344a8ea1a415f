"""The chart of where each step of a trace went."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution import CAUSE_TEXT, CAUSES
from tracelyze.analyzers.kineto.summary import TraceSummary
from tracelyze.analyzers.kineto.table import Floats
from tracelyze.diagnosis import Chart, Line

MOST_BARS: Final = 200
_LEAST_SHARE: Final = 0.01
"""Causes below this share of the whole are drawn together as one part."""


def step_chart(summary: TraceSummary, rank_in_title: bool) -> Chart | None:
    """Each step as a stack of what its time went into, in milliseconds; None if the trace has no steps.

    More than 200 steps are drawn as means over as many runs of neighbouring steps.
    """
    parts = _parts(summary)
    if not parts or not len(summary.duration):
        return None
    groups = np.array_split(np.arange(len(summary.duration)), min(MOST_BARS, len(summary.duration)))
    title = "Where each step went" + (f", rank {summary.rank}" if rank_in_title else "")
    return Chart(
        title=title,
        x_label=f"step (found by {summary.steps_from})",
        y_label="ms",
        x=[float(summary.number[group[0]]) for group in groups],
        lines=[Line(name, [round(float(values[g].mean()) / 1e3, 4) for g in groups], "bars") for name, values in parts],
    )


def _parts(summary: TraceSummary) -> list[tuple[str, Floats]]:
    device = summary.device
    if device is not None:
        parts = [
            ("computing", device.compute),
            ("communication, not hidden", device.exposed_communication),
            ("copies, not hidden", device.exposed_copy),
        ]
        causes, idle = device.causes, "idle: "
    elif summary.host is not None:
        parts, causes, idle = [], summary.host, ""
    else:
        return []
    whole = max(summary.window, 1e-9)
    small = np.zeros(len(summary.duration))
    for index in np.argsort(-causes.sum(axis=0), kind="stable"):
        if causes[:, index].sum() >= _LEAST_SHARE * whole:
            parts.append((idle + CAUSE_TEXT[CAUSES[index]], causes[:, index]))
        else:
            small = small + causes[:, index]
    parts.append((f"{idle}other causes", small))
    return [(name, values) for name, values in parts if values.any()]
