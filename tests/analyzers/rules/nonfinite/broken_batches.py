"""Batches and losses that are not finite from some step on."""

from __future__ import annotations

import math
from typing import Any

COUNT = 400  # steps, of 0.05 s each


def broken_at(make: Any, index: int) -> dict[str, Any]:
    """A training whose loss is NaN from row `index` on."""
    steps = make.steps(COUNT)
    return steps | {"loss": steps["loss"][:index] + [math.nan] * (COUNT - index)}


def batch(index: int, **more: Any) -> dict[str, Any]:
    """A float field of the batch that step `index` + 1 uses."""
    row = {"time": 0.05 * (index + 0.2), "step": index, "loader": 0, "epoch": 0, "batch": index, "trained": True}
    return row | {"field": "0", "dtype": "float32", "shape": "32x8", "nonfinite": False} | more


GIVEN_UP = [{"kind": "loss-given-up", "step": step, "name": "NaN", "time": 0.05 * step} for step in range(10, 60)]
