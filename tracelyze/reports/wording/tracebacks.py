"""Python's tracebacks as a run recorded them, taken apart into frames and exceptions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tracelyze.reports import escaping

if TYPE_CHECKING:
    from tracelyze.diagnosis import Evidence

HEADER: Final = "Traceback (most recent call last):"
_IN_WORKER: Final = f"Original {HEADER}"  # how torch begins what a loading worker raised, inside of the message

_FRAME = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d+)(?:, in (?P<function>.*))?$')
_LIBRARY = re.compile(r"(?:site-packages|dist-packages|lib/python3[.\d]*)/|<frozen |<string>")


@dataclass
class Frame:
    """One frame: where it is, and the lines below it (source and markers)."""

    file: str
    line: int
    function: str
    source: list[str] = field(default_factory=list)

    @property
    def own(self) -> bool:
        """Whether the frame is of the user's program rather than of a library."""
        return _LIBRARY.search(self.file) is None


@dataclass
class Traceback:
    """One traceback of a chain: `before` is what introduced it, `error` the exception with its message."""

    before: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    error: list[str] = field(default_factory=list)


def is_traceback(evidence: Evidence) -> bool:
    """Whether the value is Python's traceback."""
    return isinstance(evidence.value, str) and HEADER in evidence.value


def is_text(evidence: Evidence) -> bool:
    """A value of several lines that is no traceback, and no cell can hold: a stack, a table of ranks."""
    return isinstance(evidence.value, str) and "\n" in evidence.value.strip() and not is_traceback(evidence)


def parse(text: str) -> list[Traceback]:
    """The tracebacks of a chain in their order; text before the first one is its introduction."""
    found: list[Traceback] = []
    between: list[str] = []
    current: Traceback | None = None
    for line in escaping.printable(text).splitlines():
        if line.strip() in (HEADER, _IN_WORKER):
            raised = ["Where it was raised, in the worker:"] if line.strip() == _IN_WORKER else []
            current = Traceback(before=[*_stripped(between), *raised])
            found.append(current)
            between = []
            continue
        frame = _FRAME.match(line)
        if current is None:
            between.append(line)
        elif frame is not None and not current.error:
            current.frames.append(Frame(frame["file"], int(frame["line"]), frame["function"] or ""))
        elif current.frames and not current.error and line.startswith("    "):
            current.frames[-1].source.append(line[4:])
        elif current.error and not line.strip():
            # A blank line ends the message only where another traceback follows; the next header decides.
            between.append(line)
        elif between and current.error:
            between.append(line)
        else:
            current.error.append(line)
    if found and between:
        found[-1].error += between
    for one in found:
        one.error = _stripped(one.error)
    return found


def _stripped(lines: list[str]) -> list[str]:
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines
