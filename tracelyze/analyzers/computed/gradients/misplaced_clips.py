"""Clipping in a place where it bounds nothing: after the step, or before the backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location

FIX: Final = "Move the clipping between backward and step: elsewhere it changes nothing."
_AT_STEP, _FROM_CLIP = 1, 2  # where a norm was read (steps.grad_norm_source)
_SAME: Final = 1e-4  # relative: one norm of the same gradients, summed in another order
_HABIT: Final = 0.9  # share of the steps
_FEWEST: Final = 5  # steps whose norm was read although each was clipped


def seen(optimization: Optimization) -> bool:
    """Whether each clip comes after the step, or before the backward."""
    return _after_the_step(optimization) or _before_the_backward(optimization)


def _after_the_step(optimization: Optimization) -> bool:
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


def _before_the_backward(optimization: Optimization) -> bool:
    """Whether every step was clipped by norm, and no clip had a gradient: norms were only read as the step began."""
    steps = optimization.steps
    if not steps.has("clip_max_norm") or float((np.nan_to_num(steps["clips"]) >= 1).mean()) < _HABIT:
        return False
    read = steps["grad_norm_source"][np.isfinite(steps["grad_norm_source"])]
    return len(read) >= _FEWEST and bool((read == _AT_STEP).all())


def spread(optimization: Optimization, row: int) -> bool:
    """Whether a clip ran before the gradients of this step were counted, and made all NaN that it clips: it multiplies
    each by a number that is made of the norm of all. Which were so before is not known then."""
    steps = optimization.steps
    clipped = steps["grad_norm_source"][row] == _FROM_CLIP and np.isnan(steps["grad_norm"][row])
    return bool(clipped and steps["grads_nonfinite"][row] > 1) and not seen(optimization)


def line(optimization: Optimization) -> Location | None:
    """The line that clips in vain, None where none does."""
    return optimization.process.location("clip") if seen(optimization) else None


def told(optimization: Optimization) -> str:
    """A sentence about it, empty where no clip is in vain."""
    if _after_the_step(optimization):
        return " The script clips gradients only after the step, where that changes nothing."
    if _before_the_backward(optimization):
        return " The script clips gradients before the backward that makes them, where that changes nothing."
    return ""
