"""What a clip did to gradients that were still multiplied by the loss scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import clip_values
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask


def times(scales: Floats) -> str:
    """How many times too large the clip saw gradients: a scaler halves its scale, and doubles it, as it goes."""
    if not len(scales):
        return "many times"
    least, most = number(float(scales.min())), number(float(scales.max()))
    return f"{most} times" if least == most else f"{least} to {most} times"


def cut(optimization: Optimization, bad: Mask, partly: bool) -> str:
    """What the clip left of the gradients, and what it would have left of unscaled ones, by the norms it returned."""
    steps = optimization.steps
    norm, limit, scale = steps["grad_norm"], steps["clip_max_norm"], steps["scale"]
    known = bad & (steps["grad_norm_source"] == clip_values.RETURNED) & (limit > 0) & (norm > 0) & (scale > 0)
    known &= np.isfinite(norm)
    if not known.any() and partly:
        return (
            "As soon as their unscaled norm is above max_norm divided by the scale, it cut all that it took, also what "
            "was unscaled before."
        )
    if not known.any():
        return "It cut every gradient whose unscaled norm is above max_norm divided by the scale."
    norm, limit, scale = norm[known], limit[known], scale[known]
    left = float(np.median(np.fmin(1, limit / norm)))
    if partly:
        return f"It left {number(left)} of all gradients that it took (median), also of those unscaled before."
    meant = float(np.median(np.fmin(1, limit * scale / norm)))
    own, bound = number(float(np.median(norm / scale))), number(float(np.median(limit)))
    return (
        f"In the median step their norm is {own} when unscaled, and max_norm {bound}: the clip should have "
        f"{'left them as they are' if meant == 1 else f'multiplied them by {number(meant)}'}, but multiplied them by "
        f"{number(left)}."
    )
