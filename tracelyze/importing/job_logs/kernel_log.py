"""Logs of the kernel (dmesg, dmesg -T, journalctl -k): XID errors of NVIDIA's driver, kills for memory, segfaults."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from tracelyze.formatting import size
from tracelyze.importing.job_logs import xids
from tracelyze.schema import outside

_LEVEL = r"(?:<\d{1,3}>|\w+ *:\w+ *: )?"  # dmesg -r, dmesg -x
_BOOT = re.compile(_LEVEL + r"\[ *(\d{1,12}\.\d{1,9})\] ?(?P<rest>.*)")
_CTIME = re.compile(_LEVEL + r"\[\w{3} (\w{3} +\d{1,2} \d\d:\d\d:\d\d \d{4})\] ?(?P<rest>.*)")
# dmesg --time-format iso writes a comma and a zone of digits, journalctl -k names the host and itself: any other line
# that begins with a time is of another program.
_ISO = re.compile(
    _LEVEL + r"(?=\S+ \S+ kernel: |\S+,\d{1,9}[+-])(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d) "
    r"(?:(?P<host>\S+) kernel: )?(?P<rest>.*)"
)
_SYSLOG = re.compile(r"(\w{3} +\d{1,2} \d\d:\d\d:\d\d) (?P<host>\S+) kernel: (?P<rest>.*)")

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<device>[\da-fA-F:.]+)\): (?P<number>\d{1,5})"
    r"(?:, pid='?(?P<pid>\d{1,10}|<unknown>)'?)?(?:, name=(?P<name>[^,]*))?"
)
_KILLED = re.compile(r"Killed process (?P<pid>\d{1,10})[^(]*\((?P<name>.*?)\),? .*?anon-rss:(?P<kib>\d{1,15})kB")
_SEGFAULT = re.compile(r"(?P<name>\S[^\[]*)\[(?P<pid>\d{1,10})\]: segfault at .*?(?: in (?P<library>[^\[\s]+)\[|$)")
LONGEST: Final = 2_000  # characters of a line that are looked at: the kernel's end at 1,024 (LOG_LINE_MAX)
_MEMORY: Final = (
    "Give the job more host memory, or let it hold less: fewer or lighter loading workers, a smaller prefetch_factor, "
    "memory-mapped files, no growing lists. Save checkpoints, so that the next run can resume."
)


def looks_so(head: str) -> bool:
    """Whether most lines of a beginning carry the kernel's prefix."""
    lines = [line for line in head.splitlines()[:200] if line.strip()]
    return 2 * sum(_split(line) is not None for line in lines) > len(lines)


def events(file: str, lines: Iterable[tuple[int, str]]) -> Iterable[outside.Event]:
    """What the numbered lines say of processes and GPUs."""
    for number, whole in lines:
        line = whole[:LONGEST]
        if "Xid" in line or "Killed process" in line or "segfault at" in line:
            found = _event(file, number, line)
            if found is not None:
                yield found


def _event(file: str, number: int, line: str) -> outside.Event | None:
    parts = _split(line)
    if parts is None:
        return None
    at, clock, host, rest = parts
    kind: outside.Kind
    if xid := _XID.search(rest):
        happened, advice = xids.meaning(int(xid["number"]))
        kind, pid = "xid", xid["pid"]
        short = f"XID {xid['number']}, {happened}"
        said = f"the driver of the GPU {xid['device']} reported XID {xid['number']}: {happened}"
    elif killed := _KILLED.search(rest):
        kind, pid, advice = "oom-kill", killed["pid"], _MEMORY
        whose = "of its job or container" if "emory cgroup" in rest else "of the machine"
        short = "the kernel killed it for memory"
        said = (
            f"the kernel killed process {pid} ({killed['name'][:40]}), which held {size(1024.0 * int(killed['kib']))}, "
            f"because the memory {whose} was used up"
        )
    elif fault := _SEGFAULT.search(rest):
        kind, pid = "segfault", fault["pid"]
        where = f" in {fault['library'][:80]}" if fault["library"] else ""
        short, said = f"segmentation fault{where}", f"the kernel noted a segmentation fault of process {pid}{where}"
        advice = "The fault is in native code: update or reinstall the library that the line names."
    else:
        return None
    known = int(pid) if pid and pid.isdigit() else None
    return outside.Event(file, number, kind, said, short, line.strip()[:400], advice, at, clock, known, host)


def _split(line: str) -> tuple[float, outside.Clock, str, str] | None:
    """Time, clock, host and message of a line; None if it is none of the kernel's."""
    try:
        if boot := _BOOT.match(line):
            return float(boot[1]), "boot", "", boot["rest"]
        if zoned := _ISO.match(line):
            at = datetime.fromisoformat(zoned[1] + zoned[2]).timestamp()
            return at, "unix", zoned["host"] or "", zoned["rest"]
        if local := _CTIME.match(line):
            return _seconds(local[1], "%b %d %H:%M:%S %Y"), "local", "", local["rest"]
        if syslog := _SYSLOG.match(line):
            return _seconds(f"2000 {syslog[1]}", "%Y %b %d %H:%M:%S"), "yearless", syslog["host"], syslog["rest"]
    except ValueError:  # a day that no month has
        pass
    return None


def _seconds(text: str, form: str) -> float:
    """A local time in seconds, as if it were UTC."""
    return datetime.strptime(" ".join(text.split()) + " +0000", f"{form} %z").timestamp()
