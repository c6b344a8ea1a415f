"""The exception of another process that one only passes on: of a loading worker, or of a spawned process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Peer, Process

PASSED_ON: Final = re.compile(
    r"Caught \w+ in DataLoader worker process (?P<worker>\d+)\.\s*\nOriginal Traceback \(most recent call last\):\n"
    r"|-- Process (?P<spawned>\d+) terminated with the following error:\s*\nTraceback \(most recent call last\):\n"
)
RAISED: Final = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
FRAME: Final = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
LIBRARY: Final = re.compile(
    r"(?:site-packages|dist-packages|lib/python3[.\d]*)/|/tracelyze/collectors/|<frozen |<string>"
)


@dataclass(frozen=True)
class Inner:
    """The exception as it was raised: class, its text from there on, and the innermost line of the program.

    `spawned`: the index of the process that torch.multiprocessing.spawn started; None for a loading worker.
    """

    name: str
    text: str
    location: Location | None
    spawned: int | None = None


def passed_on(text: str, folder: str = "") -> Inner | None:
    """The last exception in a traceback that was raised in another process; None if it is the program's own.

    Files below `folder`, the program's working directory, are named from there, as in all locations.
    """
    found = list(PASSED_ON.finditer(text))
    if not found:
        return None
    traceback = text[found[-1].end() :]
    lines = traceback.splitlines()
    at = next((index for index, line in enumerate(lines) if RAISED.match(line)), None)
    for index, line in enumerate(lines):  # of a chain, the last one is what ended the process
        if RAISED.match(line) and index and lines[index - 1].startswith("  "):
            at = index
    if at is None:
        return None
    name = RAISED.match(lines[at])
    spawned = found[-1]["spawned"]
    return Inner(
        name[1] if name else "", traceback, _innermost(lines[:at], folder), None if spawned is None else int(spawned)
    )


def _innermost(lines: list[str], folder: str) -> Location | None:
    """The last frame that is the program's own, with its source."""
    for index in range(len(lines) - 1, -1, -1):
        frame = FRAME.match(lines[index])
        if frame and not LIBRARY.search(frame["file"]):
            source = lines[index + 1].strip() if index + 1 < len(lines) else ""
            file = frame["file"]
            file = file.removeprefix(f"{folder}/") if folder else file
            return Location(file, int(frame["line"]), frame["function"], source)
    return None


def spawned(process: Process, index: int | None) -> Peer | None:
    """The recording of the process that `process` started as number `index` of torch.multiprocessing.spawn."""
    launcher = f"{process.facts.get('host')}-{process.facts.get('pid')}"
    children = [peer for peer in process.peers if peer.launcher == launcher and peer.name != process.name]
    if index is None or len({child.rank for child in children}) == len(children):
        return next((child for child in children if child.rank == index), None)
    children.sort(key=lambda child: int(child.pid or 0))  # without ranks: in the order of their start
    return children[index] if index < len(children) else None
