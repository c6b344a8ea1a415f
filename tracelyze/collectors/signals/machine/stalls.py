"""When a training has made no progress for so long that the reason is worth recording."""

from __future__ import annotations

import statistics
from collections import deque

from tracelyze.collectors.program.progress import Progress

SECONDS = 30.0  # without any progress; or
STEPS = 20.0  # this many times the usual pause between two signs of progress
REMEMBERED = 64  # pauses that "usual" is the median of
MOST = 16  # stalls that are reported in a run


class StallDetector:
    """Asked once a second whether to report a stall: after :data:`SECONDS`, then each time after twice as long."""

    def __init__(self, progress: Progress) -> None:
        self._counters = progress
        self._progress: tuple[int, ...] = ()
        self._since = 0.0
        self._pauses: deque[float] = deque(maxlen=REMEMBERED)
        self._next = SECONDS
        self._reported = 0

    def due(self, now: float) -> float | None:
        """Seconds without progress, if it is time to record what the threads are doing; None otherwise."""
        progress = (self._counters.steps, self._counters.backwards, self._counters.forwards)
        if progress != self._progress:
            if self._progress:
                self._pauses.append(now - self._since)
            self._progress, self._since, self._next = progress, now, SECONDS
        stalled = now - self._since
        usual = statistics.median(self._pauses) if self._pauses else 0.0
        if stalled < max(self._next, STEPS * usual) or self._reported >= MOST:
            return None
        self._reported += 1
        self._next = 2 * stalled
        return stalled
