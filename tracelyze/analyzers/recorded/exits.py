"""How a process ended, from what it left on disk and from whether it still lives."""

from __future__ import annotations

import math
import os
import platform
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelyze import formatting, reading, schema
from tracelyze.diagnosis import Exit, Location
from tracelyze.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracelyze.analyzers.recorded.table import Table

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")
INTERRUPTED = 128 + 2  # SIGINT, as shells have it
STILL_SECONDS = 300.0  # clocks of hosts differ, and a disk may hang for a while
REQUESTED = "asked to terminate (SIGTERM)"
WAITS = (
    ("torch/distributed/", "a collective"),
    ("_engine_run_backward", "a backward"),
    ("/pdb.py", "a debugger"),
    ("/bdb.py", "a debugger"),
    ("/debugpy/", "a debugger"),
)
"""Where a process stands by its innermost frames: DistributedDataParallel waits for other ranks in backward."""
INNERMOST = 3  # frames
ABORTED = "Fatal Python error: Aborted in a library's thread"
_WAITED = re.compile(r" in a (collective|backward)(, in |$)")  # as _fatal words it
_DEBUGGED = re.compile(r" in a debugger(?=, in |$)")
_THREAD = re.compile(r"^(?=(?:Current thread|Thread|Stack)\b)", re.MULTILINE)  # how a stack of faulthandler begins


_PLACE = re.compile(r", in (?P<function>\S+) at line (?P<line>\d+) of (?P<file>.+)$")  # as _fatal words it


def exit_of(folder: Path, facts: Mapping[str, Any], events: Table) -> Exit:
    """The end of the process that wrote `folder`.

    A written end counts first; then the stacks that a fatal signal left; without either the process still runs, or
    it vanished without a chance to say anything (SIGKILL, power cut).
    """
    rows = list(events.records())
    ends = [row for row in rows if row["kind"] == "exit"]
    raised = [row for row in rows if row["kind"] == "exception"]
    if ends and ends[-1]["name"] != schema.EXEC_FAILED:
        return _written(_with_status(ends[-1], folder), raised)
    stopped = stop_of(text_of(folder / schema.STOPPED_FILE))
    if stopped.get("end"):
        row = {"name": stopped["end"], "value": stopped.get("code"), "text": ""}
        return _written(_with_status(row, folder), raised)
    fatal = text_of(folder / schema.SIGNAL_FILE)
    if fatal and not (raised and _is_request(fatal)):  # a launcher may end a rank that is on its way out already
        return Exit("signal", None, _fatal(fatal))
    if raised:
        return Exit("exception", None, _message(raised[-1]))
    if not facts and not rows:
        return Exit("unknown")
    if lives(facts):
        return Exit("running", None, f"process {facts.get('pid')} is still running")
    if may_live(folder, facts):
        return Exit("running", None, f"process {facts.get('pid')} on {facts.get('host')} wrote just now")
    if facts.get("pid") is None:
        return Exit("unknown")
    status = _with_status({"value": None}, folder)["value"]
    if status is not None:  # written by the C library on its way out: the program ended, and the row of that is lost
        return Exit("finished", status, "the record of its end is lost; the C library wrote the exit status")
    if facts.get("own_faulthandler"):
        return Exit("vanished", None, "the process left no exit record; a fatal signal's stacks went to its own output")
    return Exit("vanished", None, "the process left no exit record")


def stop_of(text: str) -> dict[str, Any]:
    """What a recording that stopped early says of it: "reason", "step", and the "end" of the program if it came."""
    try:
        content = reading.parse_json(text)
    except ValueError:
        content = None
    return content if isinstance(content, dict) and "reason" in content else {"reason": text}


def _with_status(row: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """The row of an end with the status that the C library wrote down, if there is none in it.

    It writes nothing where SIGINT ended the process after all: so Python ends when nobody caught a KeyboardInterrupt.
    """
    if row["value"] is not None:
        return row
    try:
        status = reading.read_start(folder / schema.STATUS_FILE, 2)
    except (OSError, InputError):
        return row
    if not status and row.get("name") == "interrupted":
        return {**row, "value": INTERRUPTED}
    return {**row, "value": status[0]} if len(status) == 1 else row


def _written(row: Mapping[str, Any], raised: list[dict[str, Any]]) -> Exit:
    name = str(row["name"] or "finished")
    code = int(row["value"]) if row["value"] is not None and math.isfinite(row["value"]) else None
    detail = str(row["text"] or "").strip()
    if name == "exception":
        return Exit("exception", code, _message(raised[-1]) if raised else detail)
    if name in ("finished", "interrupted", "signal"):
        return Exit(name, code, detail)
    if name == "exec":
        return Exit("finished", code, "replaced itself by another program (os.exec)")
    if name == "os._exit":
        return Exit("finished", code, "ended by os._exit")
    return Exit("unknown", code, name)


def _is_request(stacks: str) -> bool:
    """Whether a request to end (SIGTERM) left them, which leaves nothing else; a fatal error names itself."""
    return stacks.splitlines()[0].strip().startswith(("Stack", "Current thread", "Thread"))


def _fatal(stacks: str) -> str:
    """First line of the stacks that the signal left, with the innermost line of a program file."""
    what = REQUESTED if _is_request(stacks) else stacks.splitlines()[0].strip()
    stacks, is_other = _of_program(stacks)
    what += " in a library's thread" if is_other else ""
    what += _waiting(stacks) if is_other or what == REQUESTED else ""
    frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', stacks)
    others = (
        "<frozen ",
        "site-packages",
        "/lib/python",
        "/tracelyze/collectors/",
    )  # libraries, and what records the program
    own = [frame for frame in frames if not any(part in frame[0] for part in others)]
    if not own:
        return what
    file, line, function = own[0]
    return f"{what}, in {function} at line {line} of {Path(file).name}"


def _of_program(stacks: str) -> tuple[str, bool]:
    """The stack of the thread that the signal hit, or else that of the main thread, which is written last.

    True where it hit a thread that runs no Python, as those of Gloo and NCCL.
    """
    threads = [part for part in _THREAD.split(stacks) if 'File "' in part]
    hit = next((part for part in threads if part.startswith(("Current thread", "Stack"))), None)
    if hit is not None or not threads:
        return hit or stacks, False
    return threads[-1], True


def waited(detail: str) -> bool:
    """Whether a process that a signal ended waited for other ranks, by the words for its end."""
    return bool(_WAITED.search(detail))


def stood_in_debugger(detail: str) -> bool:
    """Whether a process that a signal ended stood in a debugger, by the words for its end."""
    return bool(_DEBUGGED.search(detail))


def reason(detail: str) -> str:
    """What ended a process, by the words for its end, without the line and the debugger that it stood in."""
    return _DEBUGGED.sub("", detail).partition(", in ")[0]


def _waiting(stacks: str) -> str:
    """Whether a process that was ended waited for other ranks, or in a debugger: by its innermost frames."""
    innermost = "\n".join(line for line in stacks.splitlines() if line.lstrip().startswith("File "))
    frames = innermost.splitlines()[:INNERMOST]
    return next((f" in {what}" for mark, what in WAITS if any(mark in frame for frame in frames)), "")


def without_place(detail: str) -> str:
    """What the words of a fatal signal say without the line at which it came."""
    return _PLACE.sub("", detail)


def place_of(end: Exit, files: Iterable[str | None] = ()) -> Location | None:
    """The innermost line of the program in the stacks that a signal left, as the detail of its end names it.

    That names the file without its folder, which is taken from `files`, those of the program that are known.
    """
    found = _PLACE.search(end.detail)
    if found is None:
        return None
    named = {file for file in files if file and Path(file).name == found["file"]}
    return Location(named.pop() if len(named) == 1 else found["file"], int(found["line"]), found["function"])


def _message(row: Mapping[str, Any]) -> str:
    """Class and message of an exception: the first line of that, or the last one where it begins with another one's
    traceback, as a loading worker's does, or with nothing."""
    name = str(row["name"] or "exception")
    lines = str(row["text"] or "").strip().splitlines() or [""]
    said = re.compile(rf"(?:[\w.]+\.)?{re.escape(name.rsplit('.', 1)[-1])}: \S")
    at = next((index for index in reversed(range(len(lines))) if said.match(lines[index])), len(lines) - 1)
    passed_on = any("Traceback (most recent call last)" in line for line in lines[at:])
    last = formatting.without_source(lines[-1 if passed_on else at].strip())
    return last if last.startswith((name, name.rsplit(".", 1)[-1])) else f"{name}: {last}".rstrip(": ")


def lives(facts: Mapping[str, Any]) -> bool:
    """Whether the process of `facts` (pid, pid_start, boot_id) runs on this machine right now.

    A pid alone is not enough: it may belong to another program by now, or to another machine's process.
    """
    pid, boot = facts.get("pid"), facts.get("boot_id")
    if not isinstance(pid, int) or not boot:
        return False
    here = text_of(BOOT_ID)
    if here != str(boot).strip():
        return False
    start = _start_of(pid)
    known = facts.get("pid_start")
    return start is not None and (known is None or str(known) == start)


def may_live(folder: Path, facts: Mapping[str, Any]) -> bool:
    """Whether the process may still write to `folder`: it runs here, or somewhere that cannot be seen from here.

    Another host, or another container of this one, cannot be asked. What it writes it writes every second, so files
    that have been still for :data:`STILL_SECONDS` belong to a process that is gone.
    """
    if lives(facts):
        return True
    boot, host, here = facts.get("boot_id"), facts.get("host"), text_of(BOOT_ID)
    if not host or not here or (host == platform.node() and boot != here):
        return False  # not known where, or this machine has been restarted since
    if boot == here and facts.get("pid_namespace") in (None, _namespace()):
        return False
    with os.scandir(folder) as entries:
        streams = [entry for entry in entries if entry.name.endswith(schema.STREAM_SUFFIX)]
        newest = max((entry.stat().st_mtime for entry in streams), default=0.0)
    return abs(time.time() - newest) < STILL_SECONDS


def _namespace() -> str | None:
    try:
        return str(PID_NAMESPACE.readlink())
    except OSError:
        return None


def _start_of(pid: int) -> str | None:
    """Start time of a living process in clock ticks since boot: field 22 of its stat file."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def text_of(path: Path) -> str:
    """The file's text without blank ends, the first MiB of it; empty if there is no such file."""
    try:
        return reading.read_start(path).decode("utf-8", errors="replace").strip("\x00 \t\r\n")
    except (OSError, InputError):
        return ""
