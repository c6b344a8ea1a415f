"""A trace in memory: device work, launches and host activity as columns, all times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracelyze.analyzers.kineto.categories import Activity
from tracelyze.analyzers.kineto.table import Table

DEVICE_COLUMNS = {
    "start": "f8",
    "end": "f8",
    "correlation": "i8",
    "name": "i4",
    "queue": "i2",
    "collective": "i2",
    "kind": "i1",
}
LAUNCH_COLUMNS = {"correlation": "i8", "start": "f8", "thread": "i4"}
HOST_COLUMNS = {"start": "f8", "end": "f8", "name": "i4", "thread": "i4"}
COVERAGE_COLUMNS = {"start": "f8", "end": "f8", "thread": "i4"}


@dataclass(frozen=True)
class Collective:
    """What a communication kernel says about its collective. `group`: process group and its ranks, as text."""

    name: str
    group: str


@dataclass
class Trace:
    """One file as read.

    `device`: columns DEVICE_COLUMNS, one row per activity in order of start, `name` into `device_names`, `queue`
    into `queues` (process, device, stream), `collective` into `collectives` (0: none). `launches`: runtime calls
    that may start device work, in order of correlation. `host`: one table per class of host activity, `name` into
    `host_names`, `thread` into `threads` (process, thread). Operators, runtime and communication calls hold
    outermost ranges only, runtime calls without names. Times are the file's own clock; `base` (microseconds) puts
    files of one job on a common one.
    """

    path: Path
    device: Table
    launches: Table
    host: dict[Activity, Table]
    device_names: list[str]
    host_names: list[str]
    queues: list[tuple[Any, Any, Any]]
    threads: list[tuple[Any, Any]]
    collectives: list[Collective]
    properties: dict[str, Any]
    base: float = 0.0
    events: int = 0
    notes: list[str] = field(default_factory=list)
    truncated: bool = False
    stacks: bool = False
