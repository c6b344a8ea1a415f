"""A trace in memory: device work, launches and host activity as columns, all times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tracelyze import schema
from tracelyze.analyzers.kineto.timeline.categories import Activity
from tracelyze.analyzers.kineto.timeline.table import Table


def _types(table: schema.Table, *without: str) -> dict[str, str]:
    """The numpy type of each column as it is kept in memory: the same as in an imported trace."""
    return {column.name: column.type for column in table.columns if column.name not in without}


DEVICE_COLUMNS: Final = _types(schema.DEVICE)
LAUNCH_COLUMNS: Final = _types(schema.LAUNCHES)
HOST_COLUMNS: Final = _types(schema.HOST, "activity")
MEMORY_COLUMNS: Final = _types(schema.MEMORY)
COVERAGE_COLUMNS: Final = _types(schema.HOST, "activity", "name")


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
    outermost ranges only, runtime calls without names. `memory`: changes of the devices' memory, in order of time.

    Times are the file's own clock; `base` (microseconds) puts files of one job on a common one. `path` is the file, or
    the folder of an imported trace; then `file` is the name of the file that was imported, and `rank` its rank at that
    time, else None.
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
    memory: Table = field(default_factory=lambda: Table.unbounded(MEMORY_COLUMNS))
    base: float = 0.0
    events: int = 0
    notes: list[str] = field(default_factory=list)
    truncated: bool = False
    stacks: bool = False
    rank: int | None = None
    file: str = ""

    def __post_init__(self) -> None:
        self.file = self.file or self.path.name
