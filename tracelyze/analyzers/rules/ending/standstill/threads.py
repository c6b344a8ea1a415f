"""What the other threads of the program did while the training thread stood, from the stacks that were written down."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.diagnosis import Location
from tracelyze.formatting import listed, shortened

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_HEAD: Final = re.compile(
    r"(?P<name>.*?)(?: \((?P<call>(?:running|sleep|futex|read|write|p?read|readv|poll|epoll|select|pause|connect|accept"
    r"|send|recv|wait|sem\w+|msgrcv|lockf|flock|fsync|open|call)(?: [a-z\d]+)?)\))?:(?P<ended> ended)?$"
)
_LIBRARIES: Final = frozenset(
    ("torch", "tqdm", "tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "clearml")
)
"""Packages whose threads hand nothing to a training: they show and write what it has done."""
_GOES_ON: Final = re.compile(r"^$|^running|^sleep|timed$|^accept|^epoll|^select|^poll|^call ")
"""What a thread is in that goes on by itself, or when somebody asks it."""
_FIRST: Final = re.compile(r"\s*(\w+)(?:/|\.py:)")
_SERVES: Final = re.compile(r"^\s*(socketserver|asyncio/\w+|http/server|xmlrpc/server|wsgiref/\w+)\.py")
MOST: Final = 8  # threads that are written down


@dataclass(frozen=True)
class Others:
    """Threads besides the training thread. `blocked`: those of the program that wait without an end, for each other or
    for the training thread; `outside`: for what another process or machine does; `going`: those that may go on by
    themselves; `ended`: those that were there before; `any`: whether any thread lives."""

    blocked: list[str]
    outside: list[str]
    going: list[str]
    ended: list[str]
    any: bool


def frames(dump: str) -> list[str]:
    """The training thread's stack, innermost last."""
    return [line.strip() for line in dump.split("\nthread ", maxsplit=1)[0].splitlines()[1:]]


def of(dump: str) -> Others:
    """The other threads of a text of stacks."""
    found = Others([], [], [], [], False)
    parts = [part.splitlines() for part in ("\n" + dump).split("\nthread ")[1:]]
    living = 0
    for head, *stack in parts:
        known = _HEAD.match(head)
        if known is None:
            continue
        if known["ended"]:
            found.ended.append(known["name"])
            continue
        living += 1
        if any(map(_SERVES.search, stack)):
            found.going.append(known["name"])
        if not any(map(_of_program, stack)):
            continue
        call = known["call"] or ""
        kind = found.going if _GOES_ON.search(call) else found.blocked if call == "futex" else found.outside
        kind.append(known["name"])
    if living >= MOST:
        found.going.append("one that was not looked at")
    return Others(found.blocked, found.outside, found.going, found.ended, living > 0)


def _of_program(frame: str) -> bool:
    """Whether a frame may belong to the program or to a library that works for it; not one of Python's own modules."""
    first = _FIRST.match(frame)
    return first is None or (first[1] not in sys.stdlib_module_names and first[1] not in _LIBRARIES)


@dataclass(frozen=True)
class Raised:
    """An exception that ended a thread: how it is said, and its line of the program."""

    said: str
    place: Location | None


def raised(process: Process) -> Raised | None:
    """The last exception that ended a thread."""
    rows = process.events_of("thread-exception")
    if not rows:
        return None
    row = rows[-1]
    lines = str(row["text"] or row["name"] or "an exception").strip().splitlines()
    place = Location(row["file"], row["line"] or 0, "", row["source"] or "") if row["file"] else None
    at = f", in line {place.line}" if place else ""
    return Raised(f"{shortened(lines[-1], 120)}{at}", place)


def sentence(others: Others, error: Raised | None) -> str:
    """What they did, after a space; empty where there were none."""
    said = []
    if error is not None:
        who = f"Thread {others.ended[0]}" if len(others.ended) == 1 else "A thread of the program"
        said.append(f"{who} had ended with an exception: {error.said}.")
    elif others.ended:
        said.append(f"{_named(others.ended)} had ended by then.")
    if others.blocked:
        said.append(f"{_named(others.blocked)} {_verb(others.blocked)} without an end as well.")
    if others.outside:
        said.append(f"{_named(others.outside)} {_verb(others.outside)} for another process or machine.")
    return "".join(f" {one}" for one in said)


def _named(names: list[str]) -> str:
    return f"Thread{'s' if len(names) > 1 else ''} {listed(names, 4)}"


def _verb(names: list[str]) -> str:
    return "wait" if len(names) > 1 else "waits"
