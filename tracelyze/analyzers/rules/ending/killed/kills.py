"""What ended a program that vanished, or that a signal ended: memory, its processor time, or what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.recorded import deaths, exits
from tracelyze.analyzers.rules.ending.killed import processor_limit
from tracelyze.diagnosis import Ending, Evidence, Location
from tracelyze.formatting import listed, percent, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

_FIX_SIGNAL: Final = (
    "Read signals.txt in the run directory: it holds the Python stacks at that time. A segmentation fault or an abort "
    "comes from native code below the named line. A request to terminate comes from the scheduler or from a person: "
    "its log says why. Save checkpoints, so that the next run can resume."
)
_FIX: Final = (
    "Find out what killed it: `journalctl -k` or `dmesg` names processes that the kernel killed for memory, the "
    "scheduler's log (`sacct`, `kubectl describe pod`) names time limits, memory limits and pre-emption. torchrun and "
    "the shell print the exit code, which names the signal. Save checkpoints, so that the next run can resume."
)
_STOPPED: Final = (
    "It just stopped: it got a signal that leaves no message (SIGKILL, or an unhandled SIGALRM, SIGHUP or similar), or "
    "the power failed."
)


class Cause(NamedTuple):
    """What ended the program, and `why` that is to be believed, after a space. `by_time`: its processor time was up."""

    ending: Ending
    title: str
    what: str
    why: str
    fix: str
    place: Location | None
    evidence: list[Evidence]
    by_time: bool = False


def cause(process: Process, when: str, limits: Limits) -> Cause:
    """The signal that was recorded; else what memory and processor time were like when the process vanished."""
    end = process.exit
    starved, left = _starved(process, limits)
    who = "The program" if len({peer.rank for peer in process.peers}) < 2 else f"Rank {process.rank}"
    killed = Ending(f"{who} was killed {when}")
    place = exits.place_of(end, process.sites.text("file"))
    fix = _FIX_SIGNAL if end.kind == "signal" else _FIX
    of_all = f"{percent(limits['left'])} of all"
    memory = (
        [] if left is None else [Evidence("memory left to the process", size(left), "", of_all, limits.source("left"))]
    )
    what = f"A signal ended the program: {end.detail}." if end.kind == "signal" else _STOPPED + _ranks_after(process)
    if starved and left is not None:
        why = f" When last looked at, {size(left)} of memory were left to it, and about to be used up."
        title = f"{killed.what}: host memory most likely ran out"
        return Cause(replace(killed, cause="memory-likely"), title, what, why, fix, place, memory)
    if end.kind == "signal":
        title = f"Ended by a signal: {exits.without_place(end.detail).removeprefix('Fatal Python error: ')}"
        return Cause(Ending("Ended by a signal", "signal"), title, what, "", fix, place, memory)
    used_up = processor_limit.reached(process, limits["unseen"])
    if used_up:
        what, place = f"It just stopped.{used_up.said}{_ranks_after(process)}", processor_limit.place(process)
        title = f"{killed.what}: its processor time was used up"
        return Cause(killed, title, what, "", processor_limit.fix(place), place, [used_up.evidence], by_time=True)
    title = f"{killed.what} and left no message"
    if left is None:
        return Cause(killed, title, what, "", fix, place, memory)
    why = (
        f" When last looked at, {size(left)} of memory were free, so it was probably not killed for memory, unless it "
        "asked for that much at once."
    )
    return Cause(replace(killed, cause="memory-unlikely", guess=why), title, what, why, fix, place, memory)


def _ranks_after(process: Process) -> str:
    """A sentence about the ranks that ended after this one, after a space; empty without any."""
    ranks = [one.rank for one in deaths.after(process)]
    return f" Rank{'s' if len(ranks) > 1 else ''} {listed(ranks, 8)} ended after it." if ranks else ""


def _starved(process: Process, limits: Limits) -> tuple[bool, float | None]:
    """Whether memory ran out, at the pace of the last two measurements, and what was left at the last one, in bytes."""
    available, resident = process.samples["host_available"], process.samples["host_rss"]
    seen = np.isfinite(available)
    if not seen.any():
        return False, None
    left = float(available[seen][-1])
    total = process.facts.get("host_memory_bytes")
    known = resident[np.isfinite(resident)]
    size = float(total) if isinstance(total, int | float) else left + (float(known[-1]) if len(known) else 0.0)
    times, taken = process.samples["time"][seen][-2:], -np.diff(available[seen][-2:])
    pace = float(taken[0] / np.diff(times)[0]) if len(taken) and np.diff(times)[0] > 0 else 0.0
    return bool(size > 0 and left - max(pace, 0.0) * limits["unseen"] < limits["left"] * size), left
