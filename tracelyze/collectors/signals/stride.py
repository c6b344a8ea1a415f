"""Every how many steps a dear signal looks, so that its own measured cost stays within a share of the step time."""

from __future__ import annotations

import math

MAX_STRIDE = 50


class Stride:
    """Learns from `spent` and `step_ended` of one optimizer; `due` says whether to look at a step."""

    def __init__(self, budget: float, young: int) -> None:
        self._budget = budget
        self._young = young
        self._cost = 0.0
        self._step_time = 0.0
        self._ended: float | None = None

    def spent(self, seconds: float) -> None:
        """One look cost this much. What it evicts from caches comes on top, so budgets are half of what may be paid."""
        self._cost = seconds if not self._cost else 0.9 * self._cost + 0.1 * seconds

    def step_ended(self, now: float) -> None:
        """A step ended at `now` seconds. Time goes up slowly, down at once: an evaluation must not buy budget."""
        if self._ended is not None:
            seconds = now - self._ended
            self._step_time = min(seconds, self._step_time * 1.05) if self._step_time else seconds
        self._ended = now

    def due(self, step: int) -> bool:
        """Whether to look at step number `step`: at all of a young run, then at every n-th."""
        if step < self._young or not self._step_time:
            return True
        return step % min(MAX_STRIDE, max(1, math.ceil(self._cost / (self._budget * self._step_time)))) == 0
