"""Calls of functions, as the program makes them, for a step or a few: through Python's own profiling.

Nothing is wrapped, and it is off again soon: each call of any function costs a microsecond meanwhile. Where somebody
else profiles the program, nothing is noted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tracelyze.collectors.program.call_sites import script_frames
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

MOST = 200_000  # calls: a fifth of a second


class NotedCalls:
    """Hands each call of a function in C, by this thread, to `seen`, with the frame that makes it, until `seen` says so
    or `end`. `called` is handed the frame of each function in Python that begins."""

    def __init__(
        self, seen: Callable[[FrameType, Any], bool], called: Callable[[FrameType], None] | None = None
    ) -> None:
        self.error: Exception | None = None  # what `seen` has raised
        self._seen, self._called = seen, called
        self._left = MOST
        self._function: Any = None

    def begin(self) -> bool:
        """Whether calls are noted from here on."""
        if sys.getprofile() is not None:
            return False
        self._function = self._note
        sys.setprofile(self._function)
        return True

    def end(self) -> None:
        """Note none any more; on the thread that has begun."""
        if self._function is not None and sys.getprofile() == self._function:
            sys.setprofile(None)
        self._function = None

    def _note(self, frame: FrameType, event: str, given: Any) -> None:
        if event != "c_call" and (event != "call" or self._called is None):
            return
        try:
            if event == "call" and self._called is not None:
                self._called(frame)
                return
            self._left -= 1
            if self._left <= 0 or self._seen(frame, given):
                self.end()
        except Exception as error:
            self.end()
            if raised_by_a_signal_handler(error):
                raise
            self.error = error


def in_script(frame: FrameType | None, within: int) -> FrameType | None:
    """The innermost frame of the script, where at most so many of libraries stand between it and the call."""
    return next(script_frames(frame, within + 1), None)
