"""The clock that all times of one recording are read from."""

from __future__ import annotations

from time import perf_counter


class Clock:
    """Seconds since the recording began. process.json relates its zero to wall time."""

    def __init__(self) -> None:
        self.zero = perf_counter()
        self.called_at = 0.0  # perf_counter at the begin of the hook that runs on the training thread

    def now(self) -> float:
        """Seconds on the process's clock."""
        return perf_counter() - self.zero
