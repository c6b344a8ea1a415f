"""The processor time of steps: other programs lengthen the time that a step takes, and hardly what it computes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.statistics import Climb

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask

FEWEST: Final = 9  # stretches: three in each third; so many in order by chance have a tau of 0.85 once in 10,000
_MOST: Final = 20  # stretches: of a longer run each has several measurements
_EVEN: Final = 0.4  # of the whole slope: the pace of the slowest third. A curve that levels off has less
_NOISE: Final = 0.15  # robust deviation from the line over the climb


def climb(optimization: Optimization, judged: Mask, *, tau: float) -> Climb | None:
    """The even climb of the processor time of a step from the warm-up to the end, or None.

    Measured once a second for the whole process, and so known for stretches of steps only: of the judged ones (shape
    [steps]) the first tenth is left out. A climb has `tau`, the same pace in each third, and little else.
    """
    rows = np.flatnonzero(judged)
    at, cost = _stretches(optimization, int(rows[len(rows) // 10]), int(rows[-1]))
    if len(cost) < FEWEST or statistics.kendall_tau(cost) < tau:
        return None
    slope = statistics.theil_sen(at, cost)
    thirds = np.array_split(np.arange(len(at)), 3)
    pace = [(cost[part].mean(), at[part].mean()) for part in thirds]
    halves = [(c1 - c0) / max(a1 - a0, 1.0) for (c0, a0), (c1, a1) in itertools.pairwise(pace)]
    line = cost - slope * at
    rise = slope * (at[-1] - at[0])
    if slope <= 0 or min(halves) < _EVEN * slope or statistics.spread(line) > _NOISE * rise:
        return None
    start = float(np.median(line)) + slope * float(rows[len(rows) // 10])
    end = float(np.median(line)) + slope * float(rows[-1])
    steadiness = rise / max(statistics.spread(line), 1e-12 * rise)
    start = max(start, float(cost.min()))  # a curve that gets steeper begins above its line
    return Climb(slope, statistics.kendall_tau(cost), steadiness, start, end, len(rows) // 10)


def _stretches(optimization: Optimization, first: int, last: int) -> tuple[Floats, Floats]:
    """Middle rows of stretches between measurements, and the processor time of a step in each, shapes [stretches]."""
    samples, ends = optimization.process.samples, optimization.steps["time"]
    time, used = samples["time"], samples["cpu_seconds"]
    known = np.isfinite(time) & np.isfinite(used) & np.isfinite(ends[first]) & np.isfinite(ends[last])
    known &= (time >= ends[first]) & (time <= ends[last])
    finite = np.flatnonzero(np.isfinite(ends))
    row = np.interp(time[known], ends[finite], finite)
    used = used[known]
    chosen = np.unique(np.linspace(0, max(0, len(row) - 1), min(len(row), _MOST + 1)).astype(int))
    row, used = row[chosen], used[chosen]
    many = np.diff(row) >= 1  # a single step that lasts for several measurements has no pace
    cost = np.diff(used)[many] / np.diff(row)[many]
    return (row[1:] + row[:-1])[many] / 2, cost
