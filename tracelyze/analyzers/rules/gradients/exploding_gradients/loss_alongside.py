"""What the loss does while gradients grow: whether they do it harm, and whether it runs away with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.analyzers.rule import Limits

_AROUND = 33  # losses: some dozens show a level and not a trend
_QUIET = 2.0  # times the level: batches of one size and kind do not double it
_BACK = 3  # losses before and behind a batch: one of each is at the level, where nothing but the batch was unlike


def improves(loss: Floats, limits: Limits) -> bool:
    """Whether the loss ended below where it began: then large gradients do no harm."""
    loss = loss[np.isfinite(loss)]
    part = max(5, len(loss) // 10)
    return len(loss) >= limits["losses"] and bool(np.median(loss[-part:]) < np.median(loss[:part]))


def lone_batches(loss: Floats, limits: Limits) -> Mask:
    """Steps whose loss is above those before and behind it, shape [steps]: the norm is that of a single batch.

    Gradients are measured now and then, and where the loss stands out: such norms say nothing of the steps between.
    """
    lone = np.zeros(len(loss), dtype=bool)
    known = np.isfinite(loss)
    if known.sum() < limits["losses"] or loss[known].min() <= 0:
        return lone
    over = loss[known] / statistics.running_median(loss[known], _AROUND)
    lone[known] = (over > limits["leap"]) | ((over > _QUIET) & _comes_back(over))
    return lone


def _comes_back(over: Floats) -> Mask:
    """Losses with a quiet one shortly before and shortly behind them, shape [losses]; `over`: by the level of each."""
    padded = np.pad(over, _BACK, constant_values=np.inf)
    around = np.lib.stride_tricks.sliding_window_view(padded, _BACK)
    before, behind = around[: len(over)].min(axis=1), around[_BACK + 1 :].min(axis=1)
    return np.asarray((before <= _QUIET) & (behind <= _QUIET), dtype=bool)


def breaks_by_itself(loss: Floats, until: int, limits: Limits) -> bool:
    """Whether the loss is no number by the first step whose gradients are none, and did not stand out before.

    An operation of the loss without a result (the log of 0) ends it so. An explosion takes the loss along first.
    """
    if not (~np.isfinite(loss[: until + 1])).any():
        return False
    loss = loss[np.isfinite(loss)]
    tail = loss[-max(10, len(loss) // 10) :]
    usual = float(np.median(tail)) if len(tail) else 0.0
    return bool(len(loss) >= limits["losses"] and tail[-2:].max() - usual <= limits["leap"] * abs(usual))


def falls_without_bound(loss: Floats, limits: Limits) -> bool:
    """Whether the loss fell below zero to `ratio` times its early size, and was still falling at the end."""
    loss = loss[np.isfinite(loss)]
    if len(loss) < limits["losses"]:
        return False
    level = statistics.block_medians(loss, 10)
    return bool(level[-1] < min(level[-2], 0.0) and -level[-1] >= limits["ratio"] * max(abs(float(level[0])), 1.0))
