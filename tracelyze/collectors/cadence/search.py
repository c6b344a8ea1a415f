"""When to look for something that a training may do from its first step on, or begin to do later."""

from __future__ import annotations

from tracelyze.collectors.cadence.budget import Meter
from tracelyze.collectors.cadence.decimation import Decimation


class Search:
    """While it is expected, steps are sampled as by `Decimation`. Once it is not, a step is sampled when the training
    has become so many times as long since the last one."""

    def __init__(self, meter: Meter, times: int = 2) -> None:
        self._meter = meter
        self._times = times
        self.begin(0)

    def begin(self, step: int) -> None:
        """A training begins at this step of the process: look as often as in the first one."""
        self.begun = step
        self.until: float = 0
        """The signal may pause until this step, if the one that was asked about last is not sampled."""
        self._decimation = Decimation(self._meter)
        self._again = 1  # steps since the training began after which a step is sampled though nothing is expected

    def due(self, step: int, expected: bool = True) -> bool:
        """Whether to sample the step that begins now, after `step` steps of the process."""
        since = step - self.begun
        if expected:
            sampling = self._decimation.due(since)
            self.until = step + self._decimation.steps_until_due(since) - 1
            return sampling
        sampling = since >= self._again and self._meter.decide(True)
        while self._again <= since:
            self._again *= self._times
        self.until = self.begun + self._again - 1
        return sampling
