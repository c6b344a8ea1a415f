"""killed: the process vanished, or died by a signal, without a word of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed import processor_limit
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.recorded import deaths, exits
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Ending, Evidence, Finding, Mark
from tracelyze.formatting import listed, percent, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

FIX_SIGNAL = (
    "Read signals.txt in the run directory: it holds the Python stacks at that time. A segmentation fault or an abort "
    "comes from native code below the named line. A request to terminate comes from the scheduler or from a person: "
    "its log says why. Save checkpoints, so that the next run can resume."
)
FIX = (
    "Find out what killed it: `journalctl -k` or `dmesg` names processes that the kernel killed for memory, the "
    "scheduler's log (`sacct`, `kubectl describe pod`) names time limits, memory limits and pre-emption. torchrun and "
    "the shell print the exit code, which names the signal. Save checkpoints, so that the next run can resume."
)
STOPPED = (
    "It just stopped: it got a signal that leaves no message (SIGKILL, or an unhandled SIGALRM, SIGHUP or similar), or "
    "the power failed."
)


def check(process: Process, limits: Limits) -> Outcome:
    """How the process ended, and what its machine's memory was like in the last seconds."""
    end = process.exit
    if end.kind == "running":
        return Passed("the program is still running: this is what was recorded so far")
    if end.kind == "unknown":
        return Skipped("how the program ended was not recorded")
    if end.kind not in ("vanished", "signal"):
        return Passed(f"the program ended with a record of its own ({end.kind})")
    cause = deaths.before(process)
    if cause is not None and not (cause.follows and cause.exit.kind == "signal"):
        return Passed(f"rank {process.rank} ended after rank {cause.rank} had: {cause.what[:200]}")
    starved, left = _starved(process, limits)
    stopped = next((note for note in process.notes if note.startswith("recording stopped")), None)
    return [_finding(process, starved, left, stopped, limits)]


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


def _finding(process: Process, starved: bool, left: float | None, stopped: str | None, limits: Limits) -> Finding:
    end = process.exit
    seconds = [float(np.nanmax(t)) for t in (process.steps["time"], process.samples["time"]) if np.isfinite(t).any()]
    optimization = timing.last_to_step(process)
    who = "The program" if len({peer.rank for peer in process.peers}) < 2 else f"Rank {process.rank}"
    known = bool(optimization and np.isfinite(optimization.steps["step"]).any())
    last = int(np.nanmax(optimization.steps["step"])) if optimization and known else len(process.steps)
    at = f"step {last:,}{timing.name_of(optimization) if optimization else ''}"
    when = f"after {at}" if last else "before its first step"
    used_up = processor_limit.reached(process, limits["unseen"]) if end.kind == "vanished" and not starved else None
    if end.kind == "signal":
        what = exits.without_place(end.detail).removeprefix("Fatal Python error: ")
        title, summary = f"Ended by a signal: {what}", f"A signal ended the program: {end.detail}."
        ending = Ending("Ended by a signal", "signal")
    else:
        ending = Ending(f"{who} was killed {when}")
        title = f"{ending.what} and left no message"
        summary = f"It just stopped.{used_up.said}" if used_up else STOPPED
        others = [one.rank for one in deaths.after(process)]
        summary += f" Rank{'s' if len(others) > 1 else ''} {listed(others, 8)} ended after it." if others else ""
    summary += f" The recording ends after {at}." if last else " No step was recorded."
    fix = FIX_SIGNAL if end.kind == "signal" else FIX
    place = processor_limit.place(process) if used_up else exits.place_of(end, process.sites.text("file"))
    if starved and left is not None:
        ending = Ending(f"{who} was killed {when}", "memory-likely")
        title = f"{ending.what}: host memory most likely ran out"
        summary += f" When last looked at, {size(left)} of memory were left to it, and about to be used up."
    elif used_up:
        title, fix = f"{ending.what}: its processor time was used up", processor_limit.fix(place)
    elif end.kind == "vanished" and left is not None:
        guess = f" When last looked at, {size(left)} of memory were free, so it was probably not killed for memory"
        guess += ", unless it asked for that much at once."
        summary, ending = summary + guess, replace(ending, cause="memory-unlikely", guess=guess)
    seen = process.last_seen
    if seen is not None and end.kind == "vanished":
        summary += f" When its thread was last sampled, it was in line {seen.line}."
    if stopped:
        summary += f" Before that, {stopped}; what happened afterwards was not recorded."
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="possible" if stopped else "certain",
        title=title,
        summary=summary,
        fix=fix,
        first_step=last,
        last_step=last,
        first_second=max(seconds, default=None),
        evidence=[
            Evidence("how it ended", end.kind), Evidence("last recorded step", last, "steps"),
            *([used_up.evidence] if used_up else []),
            *([Evidence("memory left to the process", size(left), "", f"{percent(limits['left'])} of all",
                        limits.source("left"))] if left is not None and not used_up else []),
        ],
        location=place or seen,
        seen_at=seen if used_up and place else None,
        charts=pictures.memory(optimization, [Mark(float(last), "last recorded step")]) if optimization else [],
        false_alarm="A run directory copied from another machine while the program was still running there.",
        ending=ending,
    )  # fmt: skip


RULE = Rule(
    id="killed",
    family="end of run",
    severity="critical",
    title="The program was killed",
    about="A program killed from outside cannot say so; what it recorded until then can.",
    check=check,
    asks_peers=True,
    about_the_end=True,
    verify="The next run ends by itself.",
    excluded=(
        "A program that is still running: its process is gone.",
        "A rank that a launcher ended after another one had failed: none had.",
    ),
    thresholds=(
        Threshold("left", 0.05, "share", "the kernel starts to kill when reclaiming yields next to nothing"),
        Threshold("unseen", 2.0, "s", "one second between two looks at memory, and up to one that was not written yet"),
    ),
    not_when="The program is still running.",
)
