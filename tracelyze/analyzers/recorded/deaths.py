"""Which process of a job died first, and which others only went down with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.recorded.run import Death
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process

DIED: Final = ("exception", "vanished", "signal")

MOST_OPENED: Final = 8  # other ranks whose recording is read

LOST_PEERS: Final = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Socket (is )?(closed|timeout)"
    r"|remote process exited|ncclRemoteError|ncclSystemError|ncclInternalError|NCCL communicator (was|has been) aborted"
    r"|Watchdog caught collective operation time|collective operation timeout|Timed out waiting|wait timeout after"
    r"|Application timeout caused pair closure|ProcessGroup.*(timeout|timed out)|monitoredBarrier"
    r"|DistStoreError|DistNetworkError|DistBackendError.*(timeout|timed out|remote)|failed to (recv|send), got"
    r"|(send|recv)(Bytes|Value\w*|Vector)? (failed|timed out)|The client socket has (failed|timed out)"
)
"""What torch, NCCL and Gloo say on a rank when another rank is gone, or does not come."""


def of(process: Process) -> Death | None:
    """The death of a process; None if it ended well or still runs.

    A rank of a job that ends with another exit code than 0 has died, too: `torch.multiprocessing.spawn` catches its
    exception, and hands that to the process that started it.
    """
    end = process.exit
    failed = end.kind == "finished" and bool(end.code) and process.world_size > 1
    if end.kind not in DIED and not failed:
        return None
    if "death" not in process.known:
        process.known["death"] = _of(process)
    found: Death = process.known["death"]
    return found


def in_order(deaths: Iterable[Death]) -> list[Death]:
    """The deaths as they came: those of lost peers last, else by time."""
    return sorted(deaths, key=_order)


def first(deaths: Iterable[Death]) -> Death | None:
    """The death that the others followed: not one of a lost peer if there is another one, then the earliest."""
    return min(deaths, key=_order, default=None)


def before(process: Process) -> Death | None:
    """The death of another process of the same job that this one's follows; None if this one was the first."""
    own = of(process)
    return (
        None
        if own is None
        else min((one for one in _others(process, own) if _order(one) < _order(own)), key=_order, default=None)
    )


def after(process: Process) -> list[Death]:
    """The deaths of the other processes of the job that followed this one's, in their order."""
    own = of(process)
    return [] if own is None else sorted((d for d in _others(process, own) if _order(d) > _order(own)), key=_order)


def ended_by_themselves(process: Process) -> list[Process]:
    """Other ranks of the job that came to their end without a fault, the lowest MOST_OPENED of them."""
    own = of(process)
    if own is None or not process.world_size > 1:
        return []
    alike = [peer for peer in process.peers if peer.death is None and peer.rank != process.rank]
    opened = [peer.open() for peer in alike[:MOST_OPENED] if peer.launcher == own.launcher]
    return [other for other in opened if other.exit.kind == "finished"]


def last_exception(process: Process) -> dict[str, Any] | None:
    """The row of the last uncaught exception of the main thread, if there is one."""
    return next(reversed(process.events_of("exception")), None)


def raised_at(process: Process, event: dict[str, Any]) -> Location | None:
    """The line of the program's own that raised, with the function in which it stands, where that was recorded."""
    file, line = event["file"], event["line"] or 0
    own = next((at.function for at in process.locations("exception") if at.file_line == (file, line)), "")
    return Location(file, line, own, event["source"] or "") if file else None


def _of(process: Process) -> Death:
    end = process.exit
    raised = last_exception(process)
    said = "" if raised is None else f"{raised['name']}: {raised['text']}"
    follows = (
        "SIGTERM" in end.detail if end.kind == "signal" else process.world_size > 1 and bool(LOST_PEERS.search(said))
    )
    facts = process.facts
    return Death(
        rank=process.rank,
        name=process.name,
        exit=end,
        at=_when(process, raised),
        follows=follows,
        what=end.detail or (f"exit code {end.code}" if end.kind == "finished" else end.kind),
        steps=len(process.steps),
        job=facts.get("world_size") if process.world_size > 1 else None,
        host=facts.get("host"),
        launcher=facts.get("launcher"),
    )


def _others(process: Process, own: Death) -> list[Death]:
    return [peer.death for peer in process.peers if peer.death is not None and _one_job(peer.death, own)]


def _order(death: Death) -> tuple[bool, bool, float, int, str]:
    """What follows another death last; an exit code says less than an exception or a signal."""
    return death.follows, death.exit.kind == "finished", death.at, death.rank, death.name


def _one_job(one: Death, other: Death) -> bool:
    """Whether both are ranks of one job. On one host that is one launcher; launchers of several hosts do not know."""
    if one.job is None or one.job != other.job or one.rank == other.rank:
        return False
    return bool(one.host != other.host or one.launcher == other.launcher)


def _when(process: Process, raised: dict[str, Any] | None) -> float:
    """Wall time of the exception, else of the last row that the process wrote."""
    clock = process.facts.get("clock")
    zero = clock.get("zero") if isinstance(clock, dict) else None
    if raised is not None and raised["time"] is not None:
        return float(zero or 0.0) + float(raised["time"])
    tables = (process.steps["time"], process.samples["time"])
    known = [float(np.nanmax(times)) for times in tables if np.isfinite(times).any()]
    return float(zero or 0.0) + max(known) if known else float("inf")
