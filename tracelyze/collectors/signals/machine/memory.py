"""Memory at the same point of every step: resident memory of the process, and the device allocator's counters.

Where resident memory has grown since the first steps, the appends of the next steps are noted (GrowingLists): a list
that grows from step to step, of entries of some size, may be what takes it. So may a cache without a bound, which keeps
more and more results (GrowingCaches).
"""

from __future__ import annotations

import os
from typing import Any

from tracelyze.collectors.program.call_sites import shown_path, source_line
from tracelyze.collectors.program.lines.growing.caches import GrowingCaches
from tracelyze.collectors.program.lines.growing.lists import GrowingLists
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of

EVERY = 0.005  # seconds between two readings, which take 2 to 8 us of system call: memory does not leak faster

NOT_READ = (None,)

SETTLED = 100  # steps, after which the memory of a loop has mostly settled
GROWN = 8 * 2**20  # bytes since then; from there on the analyzers may take it for a leak
AGAIN = 4  # times that growth, when lists are looked at once more: the first time a cache may have filled
LARGE = 1024  # bytes of an entry; lists of numbers grow by less at every step, and are no harm
NESTED = 8  # parts of an entry that are looked at


class Memory(Signal):
    name = "memory"
    about = "Resident memory and the device allocator's counters at the end of every step."
    cost = "5 us a reading, at most every 5 ms; where memory grows, 1 us a call of any function for three backwards"
    copied_columns = ()
    fast_columns = ("host_rss",)
    columns = columns_of("steps", "host_rss device_allocated device_reserved device_peak device_retries")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._statm: int | None = None
        self._opened_by: int | None = None
        self._read_at = -EVERY
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._settled: int | None = None  # bytes
        self._grown = GROWN
        self._lists: GrowingLists | None = None
        self._caches: GrowingCaches | None = None

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
        resident = int(os.pread(self._statm, 128, 0).split()[1]) * self._page
        if self._settled is None:
            self._settled = resident if self.progress.steps >= SETTLED else None
        elif resident - self._settled >= self._grown:
            self._look_at_what_grows(resident - self._settled)
        elif self._caches is not None:
            self._caches.look(self.progress.steps)
        return resident

    def _look_at_what_grows(self, grown: int) -> None:
        self._check()
        lists = GrowingLists(self.program.sites, "grows", self._is_large)
        if lists.begin():
            self._lists, self._grown = lists, AGAIN * grown
        if self._caches is None:
            self._caches = GrowingCaches(self.program.sites, "caches")

    def finished(self) -> None:
        self._check()
        if self._caches is not None:
            for one in self._caches.tell(self.progress.steps):
                name, file, more = one.code.co_name, one.code.co_filename, ", ".join(one.new)
                place = {"file": shown_path(file), "line": one.line, "source": source_line(file, one.line)}
                self.context.record_event("cache", name, more, value=one.found, **place)

    def _check(self) -> None:
        if self._lists is not None:
            self._lists.check()

    def _is_large(self, entry: Any) -> bool:
        parts = entry[:NESTED] if type(entry) is list else (entry,)
        if issubclass(type(entry), tuple):  # a named one as well
            parts = list(tuple.__iter__(entry))[:NESTED]
        elif type(entry) is dict:
            parts = list(entry.values())[:NESTED]
        return sum(self._bytes(one) for one in parts) >= LARGE

    def _bytes(self, value: Any) -> int:
        """What an entry takes of the host's memory, of the kinds that may take much."""
        kind = type(value)
        if kind in (bytes, bytearray, str):
            return len(value)
        if kind in (self.torch.Tensor, self.torch.nn.Parameter):
            return int(value.untyped_storage().nbytes()) if value.is_cpu and value.layout is self.torch.strided else 0
        return int(value.nbytes) if kind.__module__ == "numpy" and kind.__name__ == "ndarray" else 0
