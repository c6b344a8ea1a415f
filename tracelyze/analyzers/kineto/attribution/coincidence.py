"""What slow steps have more of than the others."""

from __future__ import annotations

import numpy as np

from tracelyze.analyzers.kineto.attribution.attribution import CAUSE_TEXT, CAUSES
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.timeline.table import Array, median


def coincidence(summary: TraceSummary, slow: Array, later: Array) -> tuple[str, float]:
    """What most of the excess of the slow steps over the median of the others went into, and its part of the excess."""
    normal = np.setdiff1d(later, slow)
    device = summary.device
    parts = [(CAUSE_TEXT[name], _column(summary, index)) for index, name in enumerate(CAUSES)]
    if device is not None:
        parts += [
            ("more computation", device.compute),
            ("communication", device.exposed_communication),
            ("copies", device.exposed_copy),
        ]
    grown = [(name, float((values[slow] - median(values[normal])).sum())) for name, values in parts]
    name, most = max(grown, key=lambda item: item[1])
    excess = float((summary.duration[slow] - median(summary.duration[normal])).sum())
    return name, min(max(most / excess, 0.0), 1.0)


def _column(summary: TraceSummary, index: int) -> Array:
    table = summary.device.causes if summary.device is not None else summary.host
    return np.zeros(len(summary.number)) if table is None else table[:, index]
