"""The level of a loss that compares the trained model with a reference, where both are the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.policies.acting import ACTED

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits

LN_2: Final = math.log(2)  # -log(sigmoid(0)): the loss of a preference between two equal models


def level(process: Process, optimization: Optimization, begin: int, limits: Limits) -> float | None:
    """The value at which the loss, or the divergence within it, stays to the last step, from row `begin` on: there the
    reference was called first.

    A policy that acts is called without autograd, too, and with normalised advantages the value of its loss may be
    constant for reasons of its own: there it has to be ln 2, or a divergence of zero.
    """
    losses, norms = optimization.steps["loss"][begin:], optimization.steps["grad_norm"][begin:]
    losses = losses[np.isfinite(losses)]
    moving = np.isfinite(norms) & (norms > 0)
    if len(losses) < limits["steps"] or not moving.any():
        return None
    middle = float(np.median(losses))
    acts = bool(process.events_of(ACTED))
    telling = not acts or abs(middle - LN_2) <= limits["about"] * LN_2
    if middle > 0 and telling and is_constant(losses, middle, limits):
        return middle
    calls = list(process.tables["loss_calls"].records())
    if any(row["same"] for row in process.tables["references"].records()) and _about_ln_2(losses, calls, limits):
        return middle
    values = [row["value"] for row in calls if row["function"] == "kl_div" and row["training"]]
    known = [abs(value) for value in values if value is not None]
    return 0.0 if len(known) >= limits["looks"] and max(known) <= limits["zero"] else None


def is_constant(losses: Floats, level: float, limits: Limits) -> bool:
    """Whether the loss is this number at all of these steps, but for rounding."""
    return float(np.nanmax(losses) - np.nanmin(losses)) <= limits["constant"] * level


def begin(optimization: Optimization, level: float, latest: int, limits: Limits) -> int:
    """The row from which on the loss is this number, up to the `latest`: the reference was called there, and calls are
    looked at now and then."""
    away = np.abs(optimization.steps["loss"][:latest] - level) > limits["constant"] * level
    return int(np.flatnonzero(away)[-1]) + 1 if away.any() else 0


def _about_ln_2(losses: Floats, calls: list[dict[str, Any]], limits: Limits) -> bool:
    """Whether a loss that is no function of torch stays about ln 2: dropout, drawn anew in each of the two calls, tells
    one model from itself. A classifier of two classes may stay there as well; torch has functions for its loss."""
    if any(row["training"] and row["function"] != loss_calls.WRITTEN_OUT for row in calls):
        return False
    fifth = max(1, len(losses) // 5)
    levels = [float(np.median(part)) for part in (losses[:fifth], losses, losses[-fifth:])]
    return all(abs(level - LN_2) <= limits["about"] * LN_2 for level in levels)
