"""Which loss of a training is out of the ordinary."""

from __future__ import annotations

import math

UNUSUAL = 3.0  # a loss this many times its running mean makes sampled signals sample the step
KEPT = 0.95  # share of the running mean that each step keeps


class UsualLosses:
    """The losses of one kind: of the backwards that run through the same models."""

    def __init__(self) -> None:
        self.limit = math.inf  # A loss above it, or below its negative, is out of the ordinary.
        self._mean: float | None = None  # running

    def is_usual(self, loss: float) -> bool:
        """Whether the next loss is finite and near those before it."""
        usual = -self.limit < loss < self.limit
        if usual or math.isfinite(loss):
            self.follow(loss)
        return usual

    def follow(self, loss: float) -> None:
        """Take the loss of a backward into account."""
        mean = self._mean
        self._mean = mean = loss if mean is None else KEPT * mean + (1.0 - KEPT) * loss
        self.limit = UNUSUAL * abs(mean) + 1e-6

    def so_far(self) -> tuple[float | None, float]:
        """What is known, for `forget_since`."""
        return self._mean, self.limit

    def forget_since(self, before: tuple[float | None, float]) -> None:
        """Undo the calls of `follow` since then."""
        self._mean, self.limit = before
