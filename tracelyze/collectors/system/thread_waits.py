"""What a thread of this process waits in, as the kernel says it: the system call, and how often it has been woken.

Python's stack names the line that waits. Whether it computes there, sleeps for a set time, polls, or waits without an
end for what another thread or process is to do, only the kernel knows.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from typing import Any, Final

from tracelyze.collectors.system.processes import read_small

X86: Final = {
    0: "read", 1: "write", 7: "poll", 17: "pread", 19: "readv", 23: "select", 34: "pause", 35: "sleep", 42: "connect",
    43: "accept", 44: "send", 45: "recv", 46: "send", 47: "recv", 61: "wait", 65: "semop", 70: "msgrcv", 72: "lockf",
    73: "flock", 74: "fsync", 202: "futex", 220: "semtimedop", 230: "sleep", 232: "epoll", 247: "wait", 257: "open",
    270: "select", 271: "poll", 281: "epoll", 288: "accept", 441: "epoll",
}  # fmt: skip
ARM: Final = {
    22: "epoll", 25: "lockf", 32: "flock", 56: "open", 63: "read", 64: "write", 65: "readv", 67: "pread", 72: "select",
    73: "poll", 82: "fsync", 95: "wait", 98: "futex", 101: "sleep", 115: "sleep", 188: "msgrcv", 192: "semtimedop",
    193: "semop", 202: "accept", 203: "connect", 206: "send", 207: "recv", 211: "send", 212: "recv", 242: "accept",
    260: "wait", 441: "epoll",
}  # fmt: skip
"""Numbers of the system calls in which a thread may wait."""
CALLS: Final = {"x86_64": X86, "aarch64": ARM}.get(platform.machine(), {})
ON_FILES: Final = ("read", "write", "pread", "readv", "accept", "send", "recv", "connect", "flock", "lockf", "fsync")
"""Those whose first argument is an open file."""
TIMEOUT: Final = {"futex": 3, "poll": 2, "epoll": 3, "select": 4}
"""Where among its arguments a call has the time after which it gives up."""
MOST: Final = 256  # processes below this one that are looked at
NEVER: Final = 0xFFFFFFFF  # that time in milliseconds, as an int of 32 bits: -1


def state(thread: int) -> dict[str, Any]:
    """`waits`: as :func:`call`; `woken`: how often the thread began to wait, in all; `thread_cpu`: its processor time;
    `below`: how many processes this one has started that live, with theirs, and `below_cpu`, their processor time.

    What this machine does not tell is left out.
    """
    folder = f"/proc/self/task/{_number(thread)}"
    found: dict[str, Any] = {}
    if waits := call(thread):
        found["waits"] = waits
    with contextlib.suppress(OSError, ValueError, IndexError):
        found["thread_cpu"] = int(read_small(f"{folder}/schedstat").split()[0]) / 1e9
    with contextlib.suppress(OSError, ValueError, IndexError):
        _, _, rest = read_small(f"{folder}/status").partition("\nvoluntary_ctxt_switches:")
        found["woken"] = int(rest.split(None, 1)[0])
    with contextlib.suppress(OSError, ValueError, IndexError):
        times = [time for pid in _below("self") if (time := _processor_time(pid)) is not None]
        found["below"], found["below_cpu"] = len(times), sum(times)
    return found


def call(thread: int) -> str:
    """The system call that a thread waits in, "running" where in none; empty where this machine does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return _waits(read_small(f"/proc/self/task/{_number(thread)}/syscall").split())
    return ""


def _below(process: str) -> list[str]:
    """The living processes that a process has started, and those that they have. OSError where they are not listed."""
    folder = f"/proc/{process}/task"
    own = [pid for task in os.listdir(folder) for pid in read_small(f"{folder}/{task}/children").split()]
    found = []
    for pid in own[:MOST]:
        with contextlib.suppress(OSError):
            found += [pid, *_below(pid)]
    return found[:MOST]


def _processor_time(pid: str) -> float | None:
    """Seconds of processor time of a process and of those that it has waited for; None where it has ended."""
    with contextlib.suppress(OSError, IndexError):
        fields = read_small(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return None


def _number(thread: int) -> int | None:
    """The operating system's number of a thread of Python; of the main thread it is the process's, after a fork too."""
    if thread == threading.main_thread().ident:
        return os.getpid()
    return next((one.native_id for one in threading.enumerate() if one.ident == thread), None)


def _waits(words: list[str]) -> str:
    """A line of /proc/<pid>/syscall in words: "futex", "futex timed", "read /dev/pts/3", "call 16", "running"."""
    if words[0] == "running":
        return "running"
    call = CALLS.get(int(words[0]), f"call {words[0]}")
    given = [int(word, 16) for word in words[1:7]]
    if call == "select" and given[0] == 0:
        return "sleep"  # on no file: so Python before 3.11 sleeps
    if call in ON_FILES:
        with contextlib.suppress(OSError):
            return f"{call} {_kind(os.readlink(f'/proc/self/fd/{given[0]}'))}"
    return f"{call} timed" if call in TIMEOUT and _is_timed(call, given) else call


def _is_timed(call: str, given: list[int]) -> bool:
    value = given[TIMEOUT[call]]
    if call in ("poll", "epoll"):  # a number of milliseconds, or where one lies
        return value & NEVER != NEVER and value != 0
    return value != 0


def _kind(path: str) -> str:
    """Where a file leads, without names of the user's: terminal, pipe, socket, or file."""
    if path.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return "terminal"
    kind = path.partition(":[")[0]
    return kind if kind in ("pipe", "socket") else "file"
