"""How the process, its children and their machine are, once a second: memory, processors, page faults, disk.

Children are distinguished from the process: where a loader's workers write to pages that they share with it (reference
counts of Python objects do that), their unique memory grows while everybody's resident memory stays.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any

from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.system import processes

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SHARES_EVERY = 10.0  # seconds between samples of shared and unique memory, in the beginning
SHARES_COST = 0.0005  # of the time, at most: the kernel holds a lock of the process's memory meanwhile
SCAN_EVERY = 5.0  # seconds between searches for child processes
SCAN_COST = 0.001
MAX_CHILDREN = 256


class Machine(Signal):
    name = "machine"
    columns = columns_of(
        "samples",
        "host_rss host_files host_pss host_uss host_swap host_available cpu_seconds cpu_limit machine_cpu "
        "cpu_throttled delayed faults_minor faults_major swapped_in disk_read children children_rss children_pss "
        "children_uss children_cpu_seconds children_delayed children_disk_read",
    )
    about = "Memory, processor time, page faults and disk reads of the process and of its children, once a second."
    cost = "0.3 ms a second on a thread of ours"

    def opened(self) -> None:
        self._reader = processes.reader()
        self._pid = os.getpid()
        self._children: list[int] = []
        self._next_scan = self._next_shares = 0.0

    def iterate(self, loader: Any, iterator: Any) -> None:
        """Workers were started, perhaps: look for them soon."""
        self._next_scan = 0.0

    def every_second(self, row: dict[str, Any]) -> None:
        row.update(self._reader.machine())
        own = self._reader.process(self._pid)
        row["host_rss"], row["host_files"] = own.pop("rss"), own.pop("files", None)
        row.update(own)
        row["cpu_limit"] = _processor_limit()
        now = perf_counter()
        if now >= self._next_scan:
            self._children = self._reader.descendants(self._pid)[:MAX_CHILDREN]
            self._next_scan = _next(now, SCAN_EVERY, SCAN_COST)
        row["children"] = len(self._children)
        living = [found for pid in self._children if (found := self._ask(self._reader.process, pid)) is not None]
        if living:
            row["children_rss"] = sum(found["rss"] for found in living)
            row["children_cpu_seconds"] = sum(found["cpu_seconds"] for found in living)
            row["children_delayed"] = sum(found.get("delayed") or 0.0 for found in living)
            row["children_disk_read"] = sum(found.get("disk_read") or 0 for found in living)
        now = perf_counter()
        if now >= self._next_shares:
            self._read_shares(row)
            self._next_shares = _next(now, SHARES_EVERY, SHARES_COST)

    def _read_shares(self, row: dict[str, Any]) -> None:
        own = self._ask(self._reader.shares, self._pid) or {}
        row.update({f"host_{name}": value for name, value in own.items()})
        children = [found for pid in self._children if (found := self._ask(self._reader.shares, pid)) is not None]
        for name in ("pss", "uss"):
            if children and all(name in found for found in children):
                row[f"children_{name}"] = sum(found[name] for found in children)

    def _ask(self, question: Any, pid: int) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = question(pid)
            return found
        except (OSError, IndexError, KeyError):  # it has ended, or belongs to somebody else
            self._next_scan = min(self._next_scan, perf_counter() + 1.0)
            return None


def _processor_limit() -> float | None:
    """Seconds of processor time after which the kernel ends the process (ulimit -t); None without such a limit."""
    if resource is None:
        return None
    seconds = resource.getrlimit(resource.RLIMIT_CPU)[0]
    return None if seconds == resource.RLIM_INFINITY else float(seconds)


def _next(begun: float, every: float, cost: float) -> float:
    """When to do again what began at `begun` and ends now: after `every` seconds, or later if it was expensive."""
    return begun + max(every, (perf_counter() - begun) / cost)
