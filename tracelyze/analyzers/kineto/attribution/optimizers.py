"""How the optimizer's steps are launched: tensor by tensor, or many tensors at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.timeline.categories import Activity
from tracelyze.analyzers.kineto.timeline.steps import Steps
from tracelyze.analyzers.kineto.timeline.table import Integers, slices
from tracelyze.analyzers.kineto.timeline.trace import Trace

_STEP: Final = re.compile(r"^Optimizer\.step#(\w+)")
MANY_AT_ONCE: Final = re.compile(r"multi_tensor|foreach|fused|triton|ForeachKernel|cudagraph", re.IGNORECASE)
"""Kernels that update many tensors: the foreach and fused optimizers, and compiled ones."""


@dataclass(frozen=True)
class OptimizerTotal:
    """All steps of the optimizers within the trace's steps: what they launched, and how long host and device took."""

    name: str
    steps: int
    launches: int
    at_once: int
    host_us: float
    device_us: float


def optimizer_total(trace: Trace, steps: Steps, launch_of: Integers) -> OptimizerTotal | None:
    """The work of `Optimizer.step`, on the thread that steps most; None if the trace names none."""
    table = trace.host[Activity.OPTIMIZER]
    named = np.array([bool(_STEP.match(name)) for name in trace.host_names], dtype=bool)
    rows = np.flatnonzero(named[table["name"]]) if len(table) else np.zeros(0, dtype=np.int64)
    if not len(rows) or not len(steps):
        return None
    thread = int(np.bincount(table["thread"][rows]).argmax())
    start, end = table["start"][rows], table["end"][rows]
    inside = (table["thread"][rows] == thread) & (start >= steps.start[0]) & (start < steps.end[-1])
    if not inside.any():
        return None
    order = np.argsort(start[inside], kind="stable")
    start, end = start[inside][order], np.maximum.accumulate(end[inside][order])
    at_once = np.array([bool(MANY_AT_ONCE.search(name)) for name in trace.device_names], dtype=bool)
    count, many, device_us = 0, 0, 0.0
    for part in slices(len(launch_of)):
        linked = np.flatnonzero(launch_of[part] >= 0) + part.start
        launches = launch_of[linked]
        launched, by = trace.launches["start"][launches], trace.launches["thread"][launches]
        place = np.searchsorted(start, launched, side="right") - 1
        own = linked[(by == thread) & (place >= 0) & (end[np.maximum(place, 0)] >= launched)]
        count += len(own)
        many += int(at_once[trace.device["name"][own]].sum())
        device_us += float((trace.device["end"][own] - trace.device["start"][own]).sum())
    match = _STEP.match(trace.host_names[int(table["name"][rows[0]])])
    return OptimizerTotal(
        name=match[1] if match else "optimizer",
        steps=len(start),
        launches=count,
        at_once=many,
        host_us=round(float((end - start).sum()), 3),
        device_us=round(device_us, 3),
    )
