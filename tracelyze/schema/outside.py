"""What logs of the machine and of the scheduler say of a job: importers read it, analyzers join it to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FOLDER_BESIDE: Final = "beside"
"""Folder of a run directory: the files in it are read beside the run."""

Kind = Literal[
    "oom-kill", "xid", "segfault", "time-limit", "preempted", "node-failure", "memory-limit", "cancelled", "task"
]
Clock = Literal["unix", "local", "yearless", "boot", ""]
"""What `Event.at` counts: seconds of Unix time; the same as if a local time were UTC, with or without its year (then
of 2000); seconds since the machine booted; nothing, where a line has no time."""


@dataclass(frozen=True)
class Event:
    """A line that says why a process ended. `said`: in words, a clause; `short`: for a title; `text`: the line."""

    file: str
    line: int
    kind: Kind
    said: str
    short: str
    text: str
    advice: str = ""
    at: float | None = None
    clock: Clock = ""
    pid: int | None = None
    host: str = ""
    job: str = ""


@dataclass(frozen=True)
class Frame:
    """A frame of a stack; `line` is 0 where it is not known."""

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Thread:
    """A thread of a dumped process; its frames, innermost first."""

    name: str
    status: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Stack:
    """A py-spy dump of one process. `rank`: from the name of its file."""

    file: str
    pid: int | None
    rank: int | None
    threads: tuple[Thread, ...]


@dataclass(frozen=True)
class Beside:
    """A file that was given beside a run: what it is, and what it holds. `job`: of a log that names a single one."""

    file: str
    title: str
    events: tuple[Event, ...] = ()
    stacks: tuple[Stack, ...] = ()
    job: str = ""
