"""The optimizer of a rank whose weights are set beside those of other ranks: the only one, or that of a last phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

MOST = 0.5  # of all steps of the process: a round of many, each with an optimizer of its own, makes fewer


def of(process: Process) -> Optimization | None:
    """None where several optimizers work together, or in rounds: then it is not known which ones should agree.

    What one rank does by itself before, as a pretraining whose weights it sends to the others, is a phase of its own.
    """
    found = process.optimizations
    if len(found) < 2:
        return found[0] if found else None
    last = max(found, key=_begin)
    before = [one for one in found if one is not last]
    apart = all(_end(one) <= _begin(last) for one in before)
    return last if apart and len(last.steps) > MOST * sum(len(one.steps) for one in found) else None


def parameters(process: Process) -> list[dict[str, Any]]:
    """The rows of the table `parameters` that belong to that optimizer; none where it is not known."""
    rows = list(process.tables["parameters"].records())
    if len(process.optimizations) < 2:
        return rows
    last = of(process)
    return [row for row in rows if last is not None and row["optimizer"] == last.optimizer]


def _begin(optimization: Optimization) -> float:
    return float(np.nanmin(optimization.steps["time"]))


def _end(optimization: Optimization) -> float:
    return float(np.nanmax(optimization.steps["time"]))
