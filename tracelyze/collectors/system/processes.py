"""What the operating system says of processes and of the machine: from /proc, elsewhere through psutil if it is there.

On Linux psutil reads the same files; reading them here spares the training an import, and looking for child processes
in the whole process table every second.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from tracelyze.collectors.system import memory_limits

LARGEST = 2**16  # bytes of the files read here: a few thousand


def reader() -> Proc | Psutil:
    """The way to ask on this machine. Raises RuntimeError if there is none."""
    if os.path.exists("/proc/self/smaps_rollup") and os.path.exists("/proc/stat"):
        return Proc()
    try:
        return Psutil()
    except ImportError as error:
        raise RuntimeError("there is no /proc, and psutil is not installed in the program's environment") from error


class Proc:
    """Linux. Methods raise OSError for a process that is gone."""

    source = "/proc"

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._tick = os.sysconf("SC_CLK_TCK")
        self._busy: tuple[int, int] | None = None
        self._groups = memory_limits.groups()

    def process(self, pid: int) -> dict[str, Any]:
        """Resident bytes; since it began processor seconds, page faults, bytes read, seconds in wait of a processor."""
        stat = _stat(pid)
        return {
            "rss": int(read_small(f"/proc/{pid}/statm").split()[1]) * self._page,
            "cpu_seconds": (int(stat[11]) + int(stat[12])) / self._tick,
            "faults_minor": int(stat[7]),
            "faults_major": int(stat[9]),
            "disk_read": self._disk_read(pid),
            "delayed": _delayed(pid),
            "files": self._files(pid),
        }

    def shares(self, pid: int) -> dict[str, int]:
        """Proportional and unique set size in bytes: what a process costs, shared pages counted in part or not at all.

        The kernel walks the process's whole page table for this: milliseconds, and more for large processes.
        """
        found = _table(f"/proc/{pid}/smaps_rollup")
        return {
            "pss": found["Pss"],
            "uss": found["Private_Clean"] + found["Private_Dirty"],
            "swap": found.get("Swap", 0),
        }

    def descendants(self, root: int) -> list[int]:
        """All processes below `root`. Reads one file of every process of the machine."""
        parents: dict[int, int] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    parents[int(name)] = int(_stat(int(name))[1])
        return _below(root, parents)

    def machine(self) -> dict[str, Any]:
        """Free memory in bytes, share of all processors that was busy since the last call, throttling, swapping."""
        memory = _table("/proc/meminfo")
        available = memory.get("MemAvailable")
        found: dict[str, Any] = {"host_available": available, "machine_cpu": self._busy_share()}
        rooms = [room for group in self._groups if (room := memory_limits.room(group)) is not None]
        found["host_available"] = min([*rooms, *([] if available is None else [available])], default=None)
        with contextlib.suppress(OSError):
            swapped = _table("/proc/vmstat", unit=self._page)
            found["swapped_in"] = swapped.get("pswpin")
        with contextlib.suppress(OSError):
            found["cpu_throttled"] = _table("/sys/fs/cgroup/cpu.stat", unit=1)["throttled_usec"] / 1e6
        return {name: value for name, value in found.items() if value is not None}

    def state(self, pid: int) -> dict[str, Any]:
        """One letter for what a process does (R runs, S sleeps, D waits for a disk, Z is dead), and where it waits."""
        stat = _stat(pid)
        waits = ""
        with contextlib.suppress(OSError):
            waits = read_small(f"/proc/{pid}/wchan").strip("0\n")
        return {"state": stat[0], "cpu_seconds": (int(stat[11]) + int(stat[12])) / self._tick, "waits_in": waits}

    @staticmethod
    def _files(pid: int) -> int | None:
        """Resident bytes of files that are mapped: they are the page cache's, and given back when they are needed."""
        for line in read_small(f"/proc/{pid}/status").splitlines():
            if line.startswith("RssFile:"):
                return int(line.split()[1]) * 1024
        return None

    @staticmethod
    def _disk_read(pid: int) -> int | None:
        try:
            return _table(f"/proc/{pid}/io", unit=1)["read_bytes"]
        except OSError:  # some containers do not allow it
            return None

    def _busy_share(self) -> float | None:
        ticks = [int(field) for field in read_small("/proc/stat").split("\n", 1)[0].split()[1:9]]
        total, idle = sum(ticks), ticks[3] + ticks[4]
        before, self._busy = self._busy, (total, idle)
        if before is None or total <= before[0]:
            return None
        return 1.0 - (idle - before[1]) / (total - before[0])


class Psutil:
    """macOS, and wherever else psutil knows its way. Raises ImportError without it."""

    source = "psutil"

    def __init__(self) -> None:
        import psutil

        self._psutil: Any = psutil
        psutil.cpu_percent()  # the next call says what was busy since this one

    def process(self, pid: int) -> dict[str, Any]:
        """As :meth:`Proc.process`; what the platform does not count is left out."""
        with self._asking(pid) as process, process.oneshot():
            memory, times = process.memory_info(), process.cpu_times()
            found = {"rss": memory.rss, "cpu_seconds": times.user + times.system}
            if hasattr(memory, "pfaults"):
                found |= {"faults_minor": memory.pfaults - memory.pageins, "faults_major": memory.pageins}
            if hasattr(process, "io_counters"):
                with contextlib.suppress(self._psutil.AccessDenied):
                    found["disk_read"] = process.io_counters().read_bytes
            return found

    def shares(self, pid: int) -> dict[str, int]:
        """As :meth:`Proc.shares`."""
        with self._asking(pid) as process:
            memory = process.memory_full_info()
            known = {"uss": memory.uss}
            return known | {name: getattr(memory, name) for name in ("pss", "swap") if hasattr(memory, name)}

    def descendants(self, root: int) -> list[int]:
        """All processes below `root`."""
        with self._asking(root) as process:
            return sorted(child.pid for child in process.children(recursive=True))

    def machine(self) -> dict[str, Any]:
        """As :meth:`Proc.machine`."""
        return {
            "host_available": self._psutil.virtual_memory().available,
            "machine_cpu": self._psutil.cpu_percent() / 100,
            "swapped_in": self._psutil.swap_memory().sin,
        }

    def state(self, pid: int) -> dict[str, Any]:
        """As :meth:`Proc.state`, with psutil's word for what the process does."""
        with self._asking(pid) as process:
            times = process.cpu_times()
            return {"state": process.status(), "cpu_seconds": times.user + times.system, "waits_in": ""}

    @contextlib.contextmanager
    def _asking(self, pid: int) -> Any:
        try:
            yield self._psutil.Process(pid)
        except self._psutil.Error as error:
            raise ProcessLookupError(str(error)) from error


def _below(root: int, parents: dict[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    pending = [root]
    while pending:
        below = children.pop(pending.pop(), [])
        found += below
        pending += below
    return sorted(found)


def _delayed(pid: int) -> float | None:
    """Seconds for which the main thread of a process waited in the queue of a processor; some kernels do not count."""
    try:
        return int(read_small(f"/proc/{pid}/schedstat").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on: the name before it may hold anything."""
    return read_small(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _table(path: str, unit: int = 1024) -> dict[str, int]:
    """A file of lines "name: number unit", in bytes."""
    found = {}
    for line in read_small(path).splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[1].isdigit():
            found[fields[0].rstrip(":")] = int(fields[1]) * unit
    return found


def read_small(path: str) -> str:
    """A small file of /proc, in one piece."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, LARGEST).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
