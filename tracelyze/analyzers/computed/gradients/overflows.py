"""Overflows of float16 gradients, apart from those that GradScaler provokes to find the largest usable scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask

RECENT = 200
_FLOAT16, _BFLOAT16 = 1, 2  # codes of steps.autocast
_MOST = 0.5  # of the steps: what most of them do is said of the training
_GROWTHS = 3  # of a scale, so that the steps between are no coincidence
_ALIKE = 0.8  # of the growths come after the same number of steps: some steps are of another loss, or not recorded


@dataclass(frozen=True)
class Overflows:
    """Overflows that were not provoked. `bad`: rows of steps, shape [steps]; `recent`: their share of the last `window`
    steps; `scale`: at the end; `backoffs`: halvings of the settled scale that were never made up for.

    `interval`: the good steps after which the scale grows, where it did so at least three times and at one interval;
    `skipped`: all steps that were, the scaler's probing among them; `skipped_lately`: their share of the last ones."""

    bad: Mask
    count: int
    recent: float
    window: int
    scale: float | None
    backoffs: int
    interval: int | None
    skipped: Mask
    skipped_lately: float


def overflows(optimization: Optimization, settling: int) -> Overflows | None:
    """Overflows from falls of the scale between consecutive rows and from skipped steps; None if neither is known.

    Not counted: the first `settling` steps, in which a scaler finds its level from its initial 65,536, unless no step
    got through at all or the scale ended below 1; and a fall whose previous change was a growth: the scaler's probing.
    """
    steps = optimization.steps
    rows = np.flatnonzero(np.isfinite(steps["scale"]))
    if not len(rows) and not steps.has("skipped"):
        return None
    bad = np.zeros(len(steps), dtype=bool)
    probing = np.zeros(len(steps), dtype=bool)
    scale = steps["scale"][rows]
    grown = False
    for index in np.flatnonzero(np.diff(scale) != 0):
        fell = scale[index + 1] < scale[index]
        row = rows[index]  # the scale in force at the step that overflowed
        if fell and grown:
            probing[row] = True
        elif fell:
            bad[row] = True
        grown = not fell
    bad |= (steps["skipped"] == 1) & ~probing
    hopeless = bool(bad.all()) or (len(scale) > 0 and scale[-1] < 1)
    settled = 0 if hopeless else min(settling, len(bad))
    bad[:settled] = False
    recent = bad[settled:][-RECENT:]
    skipped = steps["skipped"] == 1
    skipped[:settled] = False
    return Overflows(
        bad,
        int(bad.sum()),
        float(recent.mean()) if len(recent) else 0.0,
        len(recent),
        float(scale[-1]) if len(scale) else None,
        _backoffs(scale[np.searchsorted(rows, settled) :]),
        _interval(scale) if steps.has("skipped") else None,  # a log may leave out steps
        skipped,
        float(skipped[settled:][-RECENT:].mean()) if len(recent) else 0.0,
    )


def computes_in(optimization: Optimization) -> str:
    """The 16-bit type that most training forwards ran in: "float16", "bfloat16"; empty where autocast was off as the
    model was called, so that it is not known. A log does not tell it: of a run with a loss scale, float16 is likely."""
    autocast = optimization.steps["autocast"]
    known = autocast[np.isfinite(autocast)]
    if not len(known) or (known == _FLOAT16).mean() >= _MOST or optimization.facts.get("dtype") == "float16":
        return "float16"
    return "bfloat16" if (known == _BFLOAT16).mean() >= _MOST else ""


def _interval(scale: Floats) -> int | None:
    """After how many steps without an overflow the scale grows, of the scale at each step."""
    changes = np.flatnonzero(np.diff(scale) != 0)
    growths = np.flatnonzero(scale[changes + 1] > scale[changes])
    since = np.diff(changes)[growths[growths > 0] - 1]
    if len(since) < _GROWTHS:
        return None
    usual = int(np.median(since))
    return usual if (since == usual).mean() >= _ALIKE else None


def _backoffs(scale: Floats) -> int:
    """Halvings between the level that the scale had settled at and its end."""
    if len(scale) < 2:
        return 0
    level = float(np.median(scale[: max(1, len(scale) // 10)]))
    end = max(float(scale[-1]), 2.0**-149)  # a scale halved until it is zero has passed the smallest float32
    return max(0, int(np.floor(np.log2(max(level, end) / end) + 1e-9)))
