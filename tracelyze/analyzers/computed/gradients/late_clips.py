"""Clipping that comes after the optimizer's step: it cuts gradients that were used, and are cleared next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location

FIX: Final = "Move the clipping between backward and step: after the step it changes nothing."
_AT_STEP, _FROM_CLIP = 1, 2  # where a norm was read (steps.grad_norm_source)
_SAME: Final = 1e-4  # relative: one norm of the same gradients, summed in another order
_HABIT: Final = 0.9  # share of the steps


def seen(optimization: Optimization) -> bool:
    """Whether the first clip met the gradients that the first step had used, and every step has one since.

    The first step was made without a clip, and the norm that the clip before the second step returned is that of the
    first one: no backward lay between.
    """
    steps = optimization.steps
    if len(steps) < 2 or not steps.has("clips") or np.isfinite(steps["clips"][0]):
        return False
    norm, source = steps["grad_norm"], steps["grad_norm_source"]
    if (source[0], source[1]) != (_AT_STEP, _FROM_CLIP) or not (norm[0] > 0 and np.isfinite(norm[1])):
        return False
    always = float((np.nan_to_num(steps["clips"][1:]) >= 1).mean()) >= _HABIT
    return always and bool(abs(norm[1] / norm[0] - 1) <= _SAME)


def line(optimization: Optimization) -> Location | None:
    """The line that clips too late, None where none does."""
    return optimization.process.location("clip") if seen(optimization) else None


def told(optimization: Optimization) -> str:
    """A sentence about it, empty where no clip is late."""
    return " The script clips gradients only after the step, where that changes nothing." if seen(optimization) else ""
