"""Weights that are put into the trained model itself for its evaluations, such as an average: do they follow it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.rules.evaluation.ema_not_updated import copies

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits


def judged(process: Process, limits: Limits) -> copies.Standing | float | None:
    """Weights that stand still; else the share of the model's way that they made; None where the model is evaluated
    with its own, now and then at least.

    Weights that never change may be the best ones so far: they count where they are as bad as a model at its start.
    """
    table = process.tables.get("put_in")
    if table is None or not len(table) or process.training:
        return None
    evals, shares = process.evals, []
    for model in np.unique(table["model"]):
        own = table["model"] == model
        rows = np.flatnonzero(validation.passes(process) & (evals["trained"] == 1) & (evals["model"] == model))
        if not len(rows) or not (table["apart"][own] > 0).all():
            continue
        share = copies.share_of_the_way(table, own, limits)
        if share is None:
            continue
        unmoved = bool((table["changed"][own][1:] == 0).all())
        if _as_at_the_start(process, rows, limits) if unmoved else copies.hardly_moves(process, table, own, limits):
            return copies.Standing(rows, share, table["step"][own], copies.per_step(table, own), put_in=True)
        shares += [] if unmoved else [share]
    return max(shares, default=None)


def _as_at_the_start(process: Process, rows: npt.NDArray[np.intp], limits: Limits) -> bool:
    """Whether a model that has learned is evaluated as it was at its start, by the losses of these passes."""
    losses = process.evals["loss"][rows]
    ends = copies.ends_of_the_loss(process, limits) if len(process.trainings) == 1 else None
    if ends is None or not np.isfinite(losses).all() or not 0 < ends[1] <= limits["falls"] * ends[0]:
        return False
    return bool((losses >= (1 - limits["near"]) * ends[0]).all())
