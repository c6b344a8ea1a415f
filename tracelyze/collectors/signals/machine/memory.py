"""Memory at the same point of every step: resident memory of the process, and the device allocator's counters."""

from __future__ import annotations

import os
from typing import Any

from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

EVERY = 0.005  # seconds between two readings, which take 2 to 8 us of system call: memory does not leak faster

NOT_READ = (None,)


class Memory(Signal):
    name = "memory"
    about = "Resident memory and the device allocator's counters at the end of every step."
    cost = "5 us a reading, at most every 5 ms"
    copied_columns = ()
    fast_columns = ("host_rss",)
    columns = tuple(
        f"steps.{name}" for name in ("host_rss", "device_allocated", "device_reserved", "device_peak", "device_retries")
    )

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._statm: int | None = None
        self._opened_by: int | None = None
        self._read_at = -EVERY
        self._page = os.sysconf("SC_PAGE_SIZE")

    def fast_values(self, tracked: Tracked, time: float) -> tuple[int | None]:
        return (self._resident(),) if self._due(time) else NOT_READ

    def _due(self, time: float) -> bool:
        due = time - self._read_at >= EVERY
        if due:
            self._read_at = time
        return due

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if not self._due(row["time"]):
            return
        row["host_rss"] = self._resident()
        if tracked.on_cuda:
            stats = self.torch.cuda.memory_stats_as_nested_dict(tracked.parameters()[0].device)
            row["device_allocated"] = stats["allocated_bytes"]["all"]["current"]
            row["device_reserved"] = stats["reserved_bytes"]["all"]["current"]
            row["device_peak"] = stats["allocated_bytes"]["all"]["peak"]
            row["device_retries"] = stats.get("num_alloc_retries")

    def _resident(self) -> int | None:
        """Resident bytes from /proc, through one file kept open (opening it each time costs ten times as much)."""
        pid = os.getpid()
        if self._opened_by != pid:
            self._opened_by = pid
            try:
                self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._statm = None
        if self._statm is None:
            return None
        return int(os.pread(self._statm, 128, 0).split()[1]) * self._page
