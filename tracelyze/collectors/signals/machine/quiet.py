"""When a training has not moved on for so long that somebody should look at why."""

from __future__ import annotations

import statistics
from collections import deque

from tracelyze.collectors.program.progress import Progress

SECONDS = 30.0  # without any progress; or
STEPS = 20.0  # this many times the usual pause between two signs of progress
REMEMBERED = 64  # pauses that "usual" is the median of
MOST = 16  # looks in a run


class Quiet:
    """Told once a second what the time is, it says when to look: first after :data:`SECONDS`, then ever more rarely."""

    def __init__(self, progress: Progress) -> None:
        self._counters = progress
        self._progress: tuple[int, ...] = ()
        self._since = 0.0
        self._pauses: deque[float] = deque(maxlen=REMEMBERED)
        self._next = SECONDS
        self._looks = 0

    def due(self, now: float) -> float | None:
        """Seconds without progress, if now is the time to look at why."""
        progress = (self._counters.steps, self._counters.backwards, self._counters.forwards)
        if progress != self._progress:
            if self._progress:
                self._pauses.append(now - self._since)
            self._progress, self._since, self._next = progress, now, SECONDS
        quiet = now - self._since
        usual = statistics.median(self._pauses) if self._pauses else 0.0
        if quiet < max(self._next, STEPS * usual) or self._looks >= MOST:
            return None
        self._looks += 1
        self._next = 2 * quiet
        return quiet
