"""Slow steps in which the program wrote a file of weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers import statistics

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Location

FEWEST: Final = 3  # slow steps with a save: two may meet by chance
ELSEWHERE: Final = 0.2  # share of the saves in other steps, from which on a save makes no step slow
BEGINS: Final = 1  # first batches of epochs: these steps are not judged, so they are none of the others


@dataclass(frozen=True)
class Saves:
    """`share`: part of the excess of the slow steps up to the last save on record that those with a save make up; how
    many there are, and how many with a save; whether no other step had one; the line that saves."""

    share: float
    looked: int
    saved: int
    alone: bool
    excess: float
    place: Location | None


def of(optimization: Optimization, rows: npt.NDArray[np.intp], excess: Floats, typical: float) -> Saves | None:
    """What the record of saves tells of the slow steps `rows`: of a long run it holds the first ones and some more."""
    process, ends = optimization.process, optimization.steps["time"]
    moments, sites = _moments(process)
    if len(moments) < FEWEST or not optimization.steps.has("time"):
        return None
    begins = ends[rows] - (excess + typical)
    within = (begins[:, None] <= moments) & (moments <= ends[rows][:, None])
    saved, inside, known = within.any(axis=1), within.any(axis=0), begins <= moments.max()
    step = np.minimum(np.searchsorted(ends, moments), len(ends) - 1)
    judged = (moments <= ends[-1]) & ~(optimization.steps["loader_first"][step] == BEGINS)
    others = int((judged & ~inside).sum())
    if saved.sum() < FEWEST or others > ELSEWHERE * len(moments):
        return None
    share = float(excess[saved].sum() / max(float(excess[known].sum()), 1e-9))
    named = Counter(sites[inside & np.isfinite(sites)].tolist()).most_common(1)
    place = process.site(named[0][0]) if named else None
    return Saves(share, int(known.sum()), int(saved.sum()), others == 0, statistics.median(excess[saved]), place)


def _moments(process: Process) -> tuple[Floats, Floats]:
    """When each file of weights was written, and by which line."""
    rows = [row for row in (process.whole or process).tables["checkpoints"].records() if row["action"] == "save"]
    times = np.array([row["time"] for row in rows], float)
    sites = np.array([np.nan if row["site"] is None else row["site"] for row in rows], float)
    return times, sites
