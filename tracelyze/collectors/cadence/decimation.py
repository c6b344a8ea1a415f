"""Samples that get rarer as a run gets longer, so that their number grows with the logarithm of its steps."""

from __future__ import annotations

import math

from tracelyze.collectors.cadence.budget import Meter

PER_E_FOLD = 50  # samples while the number of steps grows by a factor of e, where the budget allows
GROWTH = 1.5  # factor between steps that are sampled whatever the budget says: 34 samples of a million steps


class Decimation:
    """When one optimizer's steps are sampled: the first ones, then as the budget allows, then ever more rarely."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._last = -1
        self._next: float = 0  # until this step there is nothing to decide, as long as the budget asks for the same
        self._stride = 0

    def steps_until_due(self, count: int) -> int:
        """Steps from the `count`-th to the next one that may be sampled; less than 1 if it may be that one itself."""
        return math.ceil(self._next) - count if self._meter.stride == self._stride else 0

    def due(self, count: int, alert: bool = False) -> bool:
        """Whether to sample step `count`; `alert`: something is out of the ordinary, sample at once."""
        meter = self._meter
        if count < self._next and meter.stride == self._stride and not alert:
            meter.sampling = False
            return False
        spacing = meter.stride if meter.fixed else max(meter.stride, count // PER_E_FOLD)
        far = math.inf if meter.fixed else max(GROWTH * self._last, 10)
        sampling = meter.decide(alert or count < meter.first_steps or count - self._last >= spacing or count >= far)
        if sampling:
            self._last = count
            far = math.inf if meter.fixed else max(GROWTH * count, 10)
        self._stride = meter.stride
        self._next = 0 if count < meter.first_steps else min(self._last + spacing, far)
        return sampling
