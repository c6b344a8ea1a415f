"""Joins what surrounded a job to what went wrong in it: kernel and SLURM logs by process, job and time, stacks by rank.

A line of a log becomes a cause only where its time fits the end of the run, and is called one only where process or
job are the same as well. Where only the time fits, that is said; what does not fit is left out of the findings.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tracelyze.diagnosis import Evidence, Finding, Location
from tracelyze.formatting import duration, plural
from tracelyze.reading import finite

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Peer
    from tracelyze.analyzers.rule import Outcome
    from tracelyze.schema.outside import Beside, Event, Frame, Stack

ENDS: Final = ("killed", "out-of-memory", "crash")
HANG: Final = "rank-hang"

INITIAL_NAMESPACE: Final = "pid:[4026531836]"
"""The namespace in which processes have the ids that the kernel's log names (PROC_PID_INIT_INO of Linux)."""

BEFORE: Final = 120.0
"""Seconds that a cause may come before the end: after an XID a program runs on until it next waits for the device, and
SLURM leaves a job KillWait (30 s by default) after it asked it to end."""

AFTER: Final = 60.0
"""Seconds that it may come after the last row: a process that is killed wrote its last row up to a step before."""

SLACK: Final = 5.0
"""Seconds that a cause may come after an exception, whose time is exact: so far the kernel's clock since boot drifts
from the wall clock."""

QUARTER: Final = 900.0
"""Seconds: all time zones differ from UTC by multiples of it."""

ZONES: Final = 14 * 3600.0
"""Seconds: no time zone is further from UTC."""

LAST: Final = 4e9
"""Seconds of Unix time that are read as times: until 2096."""

TIMELESS: Final = "the line has no time, so it is the likely cause, not a certain one"

QUOTED: Final = 20
"""Characters: a longer end of a program is no single word, and the line that holds it is where it was read."""

FRAMES: Final = 12
STACKS: Final = 4
ABOUT_GPUS: Final = re.compile(r"CUDA|NCCL|cuDNN|cuBLAS|\bGPU|device-side|\bECC\b|accelerator")
LIBRARY: Final = re.compile(r"^(?:torch/|threading\.py|multiprocessing/|concurrent/|<frozen)|site-packages|/lib/python")
NO_CAUSE: Final = ("cancelled", "task")
"""Kinds of lines that say that a job ended, and not why."""
GUESSED: Final = ("unknown", "memory-unlikely")
"""What a line that fits by its time alone may take the place of."""


@dataclass(frozen=True)
class _Victim:
    """The process of a finding: when it ended, and what names it in logs. `boot`: wall time at which its
    machine booted; `how`: its end, which is a line of a log where that is what became a run."""

    rank: int
    at: float
    exact: bool
    pid: int | None
    host: str
    boot: float | None
    job: str
    said: str
    how: str


@dataclass(frozen=True)
class _Match:
    """A line that fits: `seconds` after the end; by "process", "job" or only "time"; what its clock leaves open."""

    event: Event
    seconds: float | None
    by: str
    caveat: str

    @property
    def order(self) -> tuple[int, bool, bool, float]:
        place = ("process", "job", "time").index(self.by), self.event.kind in NO_CAUSE
        return (*place, self.seconds is None, abs(self.seconds or 0.0))


def join(
    outcomes: dict[str, Outcome], peers: Sequence[Peer], manifest: Mapping[str, Any], beside: Sequence[Beside]
) -> list[str]:
    """Complete the findings in `outcomes` by what the files beside the run say; returns a note for each file."""
    used: dict[tuple[str, int], _Match] = {}
    ended = False
    for rule in ENDS:
        found = outcomes.get(rule)
        if not isinstance(found, list):
            continue
        ended = ended or bool(found)
        for place, finding in enumerate(found):
            victim = _victim(finding, peers, manifest)
            if victim is not None:
                matches = _matches(finding, victim, beside)
                used |= {(match.event.file, match.event.line): match for match in matches}
                found[place] = _with_cause(finding, matches)
    hangs = outcomes.get(HANG)
    stacks = [stack for one in beside for stack in one.stacks]
    if isinstance(hangs, list) and stacks:
        outcomes[HANG] = [_with_stacks(finding, stacks, peers) for finding in hangs]
    asking = "the end of this run" if ended else "this hang" if isinstance(hangs, list) and hangs else ""
    return [_note(one, used, asking) for one in beside]


def _note(one: Beside, used: Mapping[tuple[str, int], _Match], asking: str) -> str:
    if one.stacks:
        count = plural(len(one.stacks), "process", "processes")
        return f"beside the run: {one.file}, {one.title} with the stacks of {count}"
    lines = [event.line for event in one.events if (one.file, event.line) in used]
    note = f"beside the run: {one.file}, {one.title}"
    if not one.events:
        return f"{note}, says nothing of XID errors, kills for memory or the end of a job"
    note += f" with {plural(len(one.events), 'line')} about errors and ends"
    if lines:
        return f"{note}, of which line {', '.join(map(str, lines[:4]))} fits the end of this run"
    why = f"none fits {asking} by process, job and time" if asking else "nothing in this run asks for a cause"
    if asking == "this hang":
        why = "compare host and time with those of the hang yourself"
    first = one.events[0]
    return f"{note}; {why} (line {first.line}: {first.said})"


def _victim(finding: Finding, peers: Sequence[Peer], manifest: Mapping[str, Any]) -> _Victim | None:
    dead = [peer for peer in peers if peer.rank in finding.ranks and peer.death is not None]
    if not dead or dead[0].death is None:
        return None
    death, process = dead[0].death, dead[0].open()
    facts, clock = process.facts, process.facts.get("clock")
    clock = clock if isinstance(clock, dict) else {}
    unix, monotonic = finite(clock.get("unix")), finite(clock.get("monotonic"))
    boot = None if unix is None or monotonic is None else unix - monotonic
    process.forget()
    pid = facts.get("pid") if facts.get("pid_namespace") == INITIAL_NAMESPACE else None
    job = re.match(r"SLURM_JOB_ID=(\d+)", str(manifest.get("job") or ""))
    said = f"{finding.title} {finding.summary}"
    exact = finding.ending is None
    host, number = str(facts.get("host") or ""), job[1] if job else ""
    return _Victim(death.rank, death.at, exact, pid, host, boot, number, said, death.what)


def _matches(finding: Finding, victim: _Victim, beside: Sequence[Beside]) -> list[_Match]:
    """The lines that fit the end of the process, the best first."""
    found = [
        match
        for one in beside
        for event in one.events
        if (match := _match(event, event.job or one.job, victim)) is not None and _explains(finding, match)
    ]
    return sorted(found, key=lambda match: match.order)


def _explains(finding: Finding, match: _Match) -> bool:
    kind = match.event.kind
    if finding.ending is not None:
        return kind != "segfault" or match.by == "process"
    if kind in NO_CAUSE:
        return False  # SLURM ends a step because one of its tasks has ended
    return kind != "xid" or match.by == "process" or ABOUT_GPUS.search(f"{finding.title} {finding.summary}") is not None


def _match(event: Event, job: str, victim: _Victim) -> _Match | None:
    by = "time"
    if event.pid is not None and (victim.pid is not None or _names(victim.said, event.pid)):
        if event.pid != victim.pid and not _names(victim.said, event.pid):
            return None
        by = "process"
    elif job and victim.job:
        if job != victim.job:
            return None
        by = "job"
    from_kernel = event.kind in ("oom-kill", "xid", "segfault")
    if from_kernel and event.host and victim.host and event.host.split(".")[0] != victim.host.split(".")[0]:
        return None
    if len(victim.how) > QUOTED and victim.how in event.text:
        return _Match(event, None, "job", "")
    if event.at is None:
        return _Match(event, None, by, TIMELESS) if by == "job" else None
    if not 0 <= victim.at < LAST:
        return None
    after = SLACK if victim.exact else AFTER
    before = SLACK if event.kind == "oom-kill" and not victim.exact else BEFORE
    fitting = [
        (at - victim.at, caveat)
        for at, caveat in _times(event, victim, known=by != "time")
        if -before <= at - victim.at <= after
    ]
    if not fitting:
        return None
    seconds, caveat = min(fitting, key=lambda one: abs(one[0]))
    return _Match(event, seconds, by, caveat)


def _names(said: str, pid: int) -> bool:
    """Whether a message names this process: "DataLoader worker (pid 4711) is killed by signal"."""
    return re.search(rf"\bpids?\b\W{{0,5}}{pid}\b", said) is not None


def _times(event: Event, victim: _Victim, known: bool) -> Iterator[tuple[float, str]]:
    """The times that the timestamp of a line may mean, each with what that supposes. `known`: it is about this job."""
    at = event.at
    if at is None or not 0 <= at < LAST:
        return
    if event.clock == "unix":
        yield at, ""
    elif event.clock == "boot":
        if victim.boot is not None:
            yield victim.boot + at, "the clock since boot is right to some seconds, if the machine did not boot again"
    else:
        if event.clock == "yearless":
            at = _in_year(at, datetime.fromtimestamp(victim.at, UTC).year)
        yield at, "its time is taken as UTC"
        here = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
        local = time.mktime(here.timetuple())
        if local != at:
            yield local, "its time is taken as that of this machine's time zone"
        if known:
            zone = round((at - victim.at) / QUARTER) * QUARTER
            if zone and abs(zone) <= ZONES:
                sign = "ahead of" if zone > 0 else "behind"
                yield at - zone, f"its clock must be {duration(abs(zone))} {sign} UTC"


def _in_year(at: float, year: int) -> float:
    time_then = datetime.fromtimestamp(at, UTC)
    try:
        return time_then.replace(year=year).timestamp()
    except ValueError:  # the 29th of February
        return at


def _with_cause(finding: Finding, matches: Sequence[_Match]) -> Finding:
    """The finding with its outside cause, which is in the title where process or job are the same."""
    if not matches:
        return finding
    best = matches[0]
    sure = best.by != "time"
    title, summary, ending = finding.title, finding.summary, finding.ending
    if ending is not None:
        if sure and best.event.kind != "task":
            title = f"{ending.what}: {'most likely ' if best.caveat == TIMELESS else ''}{best.event.short}"
        if best.event.kind in ("oom-kill", "memory-limit") and ending.guess:
            summary = summary.replace(ending.guess, "")
        kind = best.event.kind
        if kind != "cancelled" and kind != "task" and (sure or ending.cause in GUESSED):
            ending = replace(ending, cause=kind)
    return replace(
        finding,
        title=title,
        summary=f"{summary} {_sentence(best)}",
        fix=f"{best.event.advice} {'' if sure and ending is not None else finding.fix}".strip(),
        ending=ending,
        evidence=[
            *(Evidence(f"{match.event.file}, line {match.event.line}", match.event.text) for match in matches[:STACKS]),
            *finding.evidence,
        ],
    )


def _sentence(match: _Match) -> str:
    when = ""
    if match.seconds is not None:
        apart = duration(abs(match.seconds))
        when = f", {apart} {'before' if match.seconds < 0 else 'after'} the last that is known of it"
    same = {
        "process": "It is the same process",
        "job": "It is the same job",
        "time": "Only the time fits, so this is possible and not proven",
    }[match.by]
    caveat = f"; {match.caveat}" if match.caveat else ""
    return f"{match.event.file}, line {match.event.line}{when}: {match.event.said}. {same}{caveat}."


def _with_stacks(finding: Finding, stacks: Sequence[Stack], peers: Sequence[Peer]) -> Finding:
    """The finding with the stacks of ranks, those that hold up the others first."""
    pids: dict[Any, int] = {peer.pid: peer.rank for peer in peers if peer.pid is not None}
    ranked = [(stack.rank if stack.rank is not None else pids.get(stack.pid), stack) for stack in stacks]
    known = [(rank, stack) for rank, stack in ranked if rank is not None and stack.threads]
    guilty = [(rank, stack) for rank, stack in known if rank in finding.ranks]
    waiting = [(rank, stack) for rank, stack in known if rank not in finding.ranks]
    shown = [*guilty[:STACKS], *waiting[:2]]
    if not shown:
        return finding
    places = [(rank, stack, _place(stack)) for rank, stack in guilty[:STACKS]]
    note = [f"By {s.file}, rank {rank} stood in {p.function} ({p.file}:{p.line})." for rank, s, p in places if p]
    own = next((p for _, _, p in places if p is not None), None)
    return replace(
        finding,
        summary=" ".join([finding.summary, *note]),
        evidence=[
            *finding.evidence,
            *(Evidence(f"stack of rank {rank}, by py-spy ({stack.file})", _written(stack)) for rank, stack in shown),
        ],
        location=Location(own.file, own.line, own.function) if own else finding.location,
    )


def _main(stack: Stack) -> tuple[Frame, ...]:
    return next((one.frames for one in stack.threads if one.name == "MainThread"), stack.threads[0].frames)


def _place(stack: Stack) -> Frame | None:
    """The innermost line of the main thread outside of libraries; the innermost of all where there is none."""
    frames = [frame for frame in _main(stack) if frame.line]
    return next((frame for frame in frames if not LIBRARY.search(frame.file)), next(iter(frames), None))


def _written(stack: Stack) -> str:
    return "\n".join(f"{frame.file}:{frame.line} {frame.function}" for frame in reversed(_main(stack)[:FRAMES]))
