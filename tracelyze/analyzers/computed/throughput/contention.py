"""What a training lost to other programs on its processors: time in which it could have run and none was free.

What the kernel counts as waiting in a processor's queue includes the crowd that a training makes itself: more workers
and threads than processors. That part would stay if the machine were its own, so it is taken off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Severity

SHORTEST = 1.0  # seconds between the first and the last measurement: less is a measurement or two


@dataclass(frozen=True)
class Contention:
    """Shares of time, 0 to 1, for which others held the processors that were wanted: by the training's main thread, and
    by a worker process in the mean. `used`: processors that all workers together kept busy. 0 where it is not known."""

    own: float = 0.0
    workers: float = 0.0
    used: float = 0.0


def shares(optimization: Optimization) -> Contention:
    """How much of the training's time went to others."""
    process = optimization.process
    samples, ends = process.samples, optimization.steps["time"]
    if not samples.has("delayed") or not np.isfinite(ends).any():
        return Contention()
    time = samples["time"]
    known = np.isfinite(time) & np.isfinite(samples["delayed"]) & (time <= np.nanmax(ends) + SHORTEST)
    known &= time >= np.nanmin(ends) - SHORTEST
    rows = np.flatnonzero(known)
    if len(rows) < 2 or time[rows[-1]] - time[rows[0]] < SHORTEST:
        return Contention()
    passed = np.diff(time[rows])
    delayed, used = _grown(samples["delayed"][rows]), _grown(samples["cpu_seconds"][rows])
    count = np.nan_to_num(samples["children"][rows])
    same = (count[1:] == count[:-1]) & (count[1:] > 0)  # workers that end take what they counted with them
    seconds = max(float(passed[same].sum()), 1e-9)
    waited = float(_grown(samples["children_delayed"][rows])[same].sum()) / seconds
    worked = float(_grown(samples["children_cpu_seconds"][rows])[same].sum()) / seconds
    workers = max(float((count[1:] * passed)[same].sum()) / seconds, 1.0)
    own = float(delayed.sum() / passed.sum())
    wanted = own + float(used.sum() / passed.sum()) + waited + worked
    crowd = max(0.0, wanted - (process.facts.get("cpus") or np.inf))  # of processes that it keeps waiting itself
    left = 1.0 - min(1.0, crowd / max(own + waited, 1e-9))
    return Contention(min(1.0, own * left), min(1.0, waited / workers * left), worked)


def severity(crowd: float, gain: float, grave: bool, slow: bool, alone: float, limits: Limits) -> Severity:
    """How severe a wait is that was measured while others held the processors for this share of the time. `gain`: share
    of the step as it was measured that a fix saves; `slow`: samples are known to take long without others; `alone`:
    share of a step that would be waited without them."""
    little = crowd >= limits["others"] and gain < limits["saving"]  # on this machine, as busy as it is
    needed = limits["grave"] if little else limits["share"] if crowd >= limits["mostly"] else 0.0
    its_own = crowd < limits["crowd"] or alone >= limits["share"]  # the wait is the data's, not the machine's
    if not its_own or (needed and not (slow and alone >= needed)):
        return "info"
    return "critical" if grave and crowd < limits["crowd"] else "warning"


def said(crowd: float, alone: float, limits: Limits) -> str:
    """A sentence that warns of a measurement beside others; nothing where they were few."""
    if crowd < limits["crowd"]:
        return ""
    held = f" Others held the processors for {percent(crowd)} of the time: on a machine of its own the training would "
    return held + (f"still wait for about {percent(alone)} of it." if alone >= limits["share"] else "wait less.")


def was_alone(optimization: Optimization, most: float) -> bool:
    """Whether it is known that others held the processors for less than this share of the training's time."""
    samples = optimization.process.samples
    time = samples["time"][np.isfinite(samples["time"]) & np.isfinite(samples["delayed"])]
    return len(time) > 1 and float(np.ptp(time)) >= SHORTEST and shares(optimization).own < most


def within(process: Process, begins: Floats, ends: Floats) -> Floats:
    """Seconds between `begins` and `ends` for which the main thread was ready and had no processor; 0 where unknown."""
    samples = process.samples
    known = np.isfinite(samples["time"]) & np.isfinite(samples["delayed"])
    if known.sum() < 2:
        return np.zeros(len(ends))
    time, delayed = samples["time"][known], samples["delayed"][known]
    return np.asarray(np.interp(ends, time, delayed) - np.interp(begins, time, delayed), dtype=np.float64)


def _grown(values: Floats) -> Floats:
    """What a counter gained from one sample to the next."""
    return np.maximum(np.nan_to_num(np.diff(values)), 0.0)
