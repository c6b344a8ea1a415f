"""Gradient accumulation, as far as it shows: why some loops with several backwards per step cannot be judged."""

from __future__ import annotations

from typing import Final

SEVERAL_OPTIMIZERS: Final = "several optimizers train together, and which backward belongs to which is not known"
NOT_PER_BATCH: Final = (
    "a step has several backwards, but not one per batch of a loader: they may be different losses, or two passes "
    "over the same batch"
)
SCALE_MATTERS: Final = ("SGD", "ASGD", "ByHand")
"""Optimizers whose steps are as long as the gradient; Adam and its kin divide that out."""
