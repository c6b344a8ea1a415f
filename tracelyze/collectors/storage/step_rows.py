"""Rows of the table steps, which are written in order: one that waits for its values holds up those behind it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

if TYPE_CHECKING:
    from tracelyze.collectors.recording.recorder import Recorder
    from tracelyze.collectors.tensors.readback import Later


class StepRows:
    """Of one recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pending: deque[tuple[dict[str, Any], list[Later]]] = deque()
        self._parts: list[Later] = []  # of the current step's row

    @property
    def waiting(self) -> bool:
        """Whether a row waits for values."""
        return bool(self._pending or self._parts)

    def later(self, part: Later) -> None:
        """Fill part of the current step's row when the device has delivered it."""
        self._parts.append(part)

    def put(self, row: dict[str, Any]) -> None:
        """The current step's row is complete, but for what is filled in later."""
        if self._parts or self._pending:
            self._pending.append((row, self._parts))
            self._parts = []
            self.release()
        else:
            self._recorder.writer.emit("steps", row)

    def release(self, wait: bool = False) -> None:
        """Pass on, in order, the steps whose values have arrived from the device."""
        recorder = self._recorder
        while self._pending:
            # Taken out first: a handler of a signal may train, and come here, between any two lines.
            row, parts = self._pending.popleft()
            if not wait and not all(part.arrived() for part in parts):
                self._pending.appendleft((row, parts))
                return
            for part in parts:
                try:
                    part.fill(row)
                except Exception as error:
                    if raised_by_a_signal_handler(error):
                        recorder.emit("steps", row)
                        raise
                    recorder.writer.complain(error)
            recorder.emit("steps", row)
