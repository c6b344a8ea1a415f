"""In which function and line of the script a batch is made: a few, timed from call to call by Python's profiling.

Not by looks from another thread: that one looks where a call lets go of Python's lock. What a function calls of
libraries counts as its own time. It is off again after these, or after MOST calls: each costs half a microsecond. While
others hold the processor no line runs: what a line took too long for that reason is not counted.
"""

from __future__ import annotations

import resource
import sys
from time import perf_counter, thread_time
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.program.call_sites import is_library
from tracelyze.collectors.program.lines.loops.extents import loops
from tracelyze.collectors.program.loading import lone_rows

BATCHES: Final = 6  # the first of them aside
MOST: Final = 30_000  # events: about 15 ms
LONG: Final = 3e-4  # seconds from call to call: others may have held the processor meanwhile, for a millisecond or more
DEEP: Final = 40  # frames of libraries between two of the script
SPACE: Final = 512  # bytes, for what a worker hands to the training process


class Timed(NamedTuple):
    """Microseconds for which a batch was looked at, those of them in one function, and its line with most of these."""

    whole: int
    there: int
    line: int
    function: str
    file: str


class TimedLines:
    """Times the lines of the thread that calls `begin`, until `end`."""

    def __init__(self, collate: Any = None) -> None:
        self.lone_rows = lone_rows.of(collate)
        self.spent = 0.0  # in here, which is no time of the batch's
        self._seconds: dict[tuple[int, int], float] = {}  # by function and line
        self._codes: dict[int, CodeType] = {}  # functions of the script, by identity
        self._others: set[int] = set()
        self._kept: list[CodeType] = []  # so that identities stay theirs
        self._current: tuple[int, int] | None = None
        self._batches = 0
        self._best: tuple[float, dict[tuple[int, int], float]] | None = None
        self._events, self._whole, self._last = 0, 0.0, 0.0
        self._checked = 0, 0.0, 0.0  # how often others took the processor, the thread's time on it, the time
        self._function: Any = None

    def begin(self) -> bool:
        """Whether the batch to come is timed: not the first, which may open files, nor where the program is profiled
        by somebody else."""
        self._batches += 1
        if self._batches == 1 or self.done or sys.getprofile() is not None:
            return False
        self._seconds, self._whole, self._current = {}, 0.0, None
        self._last = perf_counter()
        self._checked = _taken_away(), thread_time(), self._last
        self._function = self._note
        sys.setprofile(self._function)
        return True

    def end(self) -> None:
        """The batch was made. Of several the quickest is kept: others may have waited for a processor, in any line."""
        self._stop()
        if self._seconds and (self._best is None or self._whole < self._best[0]):
            self._best = self._whole, self._seconds

    @property
    def done(self) -> bool:
        """Whether no further batch is to be timed."""
        return self._batches > BATCHES or self._events >= MOST

    def _stop(self) -> None:
        if self._function is not None and sys.getprofile() == self._function:
            sys.setprofile(None)
        self._function = None

    def _note(self, frame: FrameType, event: str, given: Any) -> None:
        now = perf_counter()
        took = now - self._last if now - self._last < LONG else self._took(now)
        self._whole += took
        if self._current is not None:
            self._seconds[self._current] = self._seconds.get(self._current, 0.0) + took
        self._events += 1
        own = self._is_own(frame.f_code)
        if event == "c_return" and self._current is not None and own:
            self._current = id(frame.f_code), -frame.f_lineno
        elif event in ("call", "c_call"):
            caller = frame if own else frame.f_back
            if caller is not None and (own or self._is_own(caller.f_code)):
                self._current = id(caller.f_code), caller.f_lineno
        elif event == "return" and own:
            if self.lone_rows is not None and frame.f_code is self.lone_rows.code and given is not None:
                self.lone_rows.returns(frame, given)
            self._current = self._of(frame.f_back)
        if self._events >= MOST:
            self._stop()
        self._last = perf_counter()
        self.spent += self._last - now

    def _took(self, now: float) -> float:
        """Seconds since the last event, less those for which others held the processor."""
        taken_away, on_it, checked = self._checked
        self._checked = _taken_away(), thread_time(), now
        if self._checked[0] == taken_away:
            return now - self._last
        elsewhere = now - checked - (self._checked[1] - on_it)
        return max(0.0, now - self._last - elsewhere)

    def _of(self, frame: FrameType | None) -> tuple[int, int] | None:
        """The innermost line of the script from here on, above the hooks around the batch."""
        for _ in range(DEEP):
            if frame is None or frame.f_code.co_filename.startswith(_HOOKS):  # named otherwise for warnings
                return None
            if self._is_own(frame.f_code):
                return id(frame.f_code), frame.f_lineno
            frame = frame.f_back
        return None

    def _is_own(self, code: CodeType) -> bool:
        known = id(code)
        if known in self._others:
            return False
        if known not in self._codes:
            self._kept.append(code)
            if is_library(code.co_filename):
                self._others.add(known)
                return False
            self._codes[known] = code
        return True

    def found(self) -> Timed | None:
        """The function with most of the time; None where libraries took it all."""
        if self._best is None:
            return None
        functions: dict[int, float] = {}
        whole, timed = self._best
        for (function, _), seconds in timed.items():
            functions[function] = functions.get(function, 0.0) + seconds
        most = max(functions, key=functions.__getitem__)
        code, lines = self._codes[most], {line: one for (of, line), one in timed.items() if of == most}
        line = _line(code, lines)
        return Timed(round(whole * 1e6), round(functions[most] * 1e6), line, code.co_name, code.co_filename)


def _taken_away() -> int:
    """How often others were given the processor while this thread still had work on it; 0 where nobody counts."""
    thread = getattr(resource, "RUSAGE_THREAD", None)
    return 0 if thread is None else resource.getrusage(thread).ru_nivcsw


def _line(code: CodeType, seconds: dict[int, float]) -> int:
    """The line of a function with most of the time; where a loop has most of it, the one in the loop.

    A negative number: the time after the last call in that line, until the next call. The line itself is done soon, so
    that it is time of the loop that follows, which calls nothing.
    """
    around = sorted(loops(code))
    lines: dict[int, float] = {}
    for line, spent in seconds.items():
        at = abs(line)
        if line < 0 or line == code.co_firstlineno:
            later = [loop for loop in around if loop[0] > at]
            inside = any(first <= at <= last for first, last in around)
            whole = max((loop for loop in later if loop[0] == later[0][0]), key=lambda loop: loop[1], default=None)
            if whole is not None and not inside:
                at = max(first for first, last in later if whole[0] <= first and last <= whole[1])
        lines[at] = lines.get(at, 0.0) + spent
    for first, last in around:
        within = {line: spent for line, spent in lines.items() if first <= line <= last}
        if sum(within.values()) > sum(lines.values()) / 2:
            lines = within
    return max(lines, key=lines.__getitem__)


def to_bytes(found: Timed) -> bytes:
    """At most SPACE bytes; none where it takes more."""
    text = "\n".join(map(str, found)).encode() + b"\0"
    return text if len(text) <= SPACE else b""


def of_bytes(content: bytes) -> Timed | None:
    """What `to_bytes` made; None of anything else: its writer may be about to write."""
    text, end, _ = content.partition(b"\0")
    parts = text.decode(errors="replace").split("\n", 4)
    if not end or len(parts) < 5 or not all(part.isdigit() for part in parts[:3]):
        return None
    return Timed(int(parts[0]), int(parts[1]), int(parts[2]), parts[3], parts[4])


_HOOKS: Final = __file__.replace("program/loading/timed_lines", "hooks/loaders")
