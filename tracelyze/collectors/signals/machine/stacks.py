"""Where the training thread is, seen from outside: once a second its line, and its whole stack when nothing moves on.

The line of every second adds up to where the time goes between steps, without a profiler. A thread that holds Python's
lock while it computes is seen when it lets go of it, so single lines are approximate; long waits are exact. Where a
second has passed without a step, a backward and a forward, the kernel is asked whether the thread waits, and in what.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any

from tracelyze import redaction
from tracelyze.collectors.internals.own_frames import COLLECTORS
from tracelyze.collectors.program.call_sites import line_of, script_frames, shown_path, source_line
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.machine.stalls import StallDetector
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.system import thread_waits
from tracelyze.collectors.system.threads import idents

FRAMES = 60  # of the training thread, innermost last
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
OTHERS, OTHERS_FRAMES = 8, 12  # threads besides it, and frames of each
NAMES = 64  # of threads that are remembered, to say which of them have ended


class Stacks(Signal):
    name = "stacks"
    columns = columns_of("samples", "site innermost waits woken thread_cpu below below_cpu")
    about = "The training thread's line, once a second; what it waits in, and all stacks, when nothing moves on."
    cost = "20 us a second on a thread of ours, 100 us while nothing moves on"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._stalls = StallDetector(context.progress)
        self._before: tuple[int, ...] = ()
        self._names: set[str] = set()  # of threads besides the training thread that have been seen

    def every_second(self, row: dict[str, Any]) -> None:
        owner = self.context.thread.ident
        frame = sys._current_frames().get(owner) if owner is not None else None
        if owner is None or frame is None:
            return
        row["site"] = self.program.sites.of(frame, "sampled", whole_line=True)
        row["innermost"] = _place(frame)
        del frame
        moved = (self.progress.steps, self.progress.backwards, self.progress.forwards)
        if moved == self._before:
            row.update(thread_waits.state(owner))
        self._before = moved
        if len(self._names) < NAMES:
            self._names |= _living(owner)
        stalled = self._stalls.due(self.context.now())
        if stalled is not None:
            self._write_down(owner, stalled)

    def _write_down(self, owner: int, stalled: float) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()
        training = frames.pop(owner, None)
        if training is None:
            return
        lines = [f"training thread ({names.get(owner)}), innermost last:", *stack(training, FRAMES)]
        others = [(ident, frame) for ident, frame in frames.items() if ident not in idents]
        for ident, frame in others[:OTHERS]:
            waits = thread_waits.call(ident)
            in_call = f" ({waits})" if waits else ""
            lines += [f"thread {names.get(ident)}{in_call}:", *stack(frame, OTHERS_FRAMES)]
        lines += [f"thread {name}: ended" for name in sorted(self._names - _living(owner))]
        line = _innermost_of_script(training)
        del frames, training, others
        self.context.record_event(
            "stacks",
            "no progress",
            redaction.redact_text("\n".join(lines)),
            value=stalled,
            file=shown_path(line[0]) if line else None,
            line=line[1] if line else None,
            source=source_line(*line) if line else None,
        )


def _living(owner: int) -> set[str]:
    """Names of the threads of Python that live, besides the training thread."""
    return {thread.name for thread in threading.enumerate() if thread.ident != owner}


def stack(frame: FrameType | None, limit: int) -> list[str]:
    """The innermost `limit` frames as lines of text, innermost last; without the collector's own."""
    lines: list[str] = []
    while frame is not None and len(lines) < limit:
        if not frame.f_code.co_filename.startswith(COLLECTORS):
            lines.append("  " + _place(frame))
        frame = frame.f_back
    return lines[::-1]


def _innermost_of_script(frame: FrameType | None) -> tuple[str, int] | None:
    return next(((one.f_code.co_filename, line_of(one)) for one in script_frames(frame)), None)


def _place(frame: FrameType) -> str:
    """ "torch/nn/functional.py:3029 cross_entropy": short for files of packages, whole for the script's."""
    path = frame.f_code.co_filename.removeprefix(STANDARD_LIBRARY)
    for folder in ("site-packages", "dist-packages"):
        _, found, rest = path.partition(f"{os.sep}{folder}{os.sep}")
        path = rest if found else path
    return f"{shown_path(path)}:{line_of(frame)} {frame.f_code.co_name}"
