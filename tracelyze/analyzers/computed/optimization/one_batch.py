"""A training that one batch broke: its loss leapt before any update could have made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats

_BEFORE: Final = 8  # losses before it, which show the level
_HEIGHT: Final = 50
"""Times the largest of them, from one step to the next. Updates that overshoot multiply a loss by less than 10 a step,
and by less at first (with a momentum of 0.9, too)."""
_SOUND: Final = 10  # times the usual norm: the step before it was no larger


def leap(losses: Floats, first: int = 0) -> int | None:
    """Index, from `first` on, of the first loss (shape [steps]) that towers over all of those before it, or None."""
    if len(losses) <= _BEFORE:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(np.abs(losses[:-1]), _BEFORE)
    highest = windows.max(axis=1)  # of those before each loss; NaN and infinity pass none of the comparisons
    towers = (highest > 0) & np.isfinite(highest) & (losses[_BEFORE:] >= _HEIGHT * highest)
    found = np.flatnonzero(towers[max(0, first - _BEFORE) :])
    return int(found[0]) + max(_BEFORE, first) if len(found) else None


def told(optimization: Optimization, between: tuple[int, int]) -> tuple[str, str]:
    """A sentence on the batch with which it began in one of these rows, and what to do about it; empty if none did.

    The gradient of the step before has to be known as usual, so that nothing but the batch explains the leap.
    """
    norms = optimization.steps["grad_norm"]
    row = leap(optimization.steps["loss"][: between[1] + 1], max(1, between[0] - 1))
    usual = norms[:row][np.isfinite(norms[:row])] if row is not None else norms[:0]
    if row is None or not len(usual) or not norms[row - 1] <= _SOUND * float(np.median(usual)):
        return "", ""
    at = timing.step_at(optimization, row)
    return (
        f" It began with one batch: the loss leapt at step {at}, after an update no larger than others.",
        f"Look at the batch of step {at}: its labels, range and units. ",
    )
