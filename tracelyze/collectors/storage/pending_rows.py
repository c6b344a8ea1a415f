"""Rows of tables other than steps, on their way: written in order, each when its values have come from the device."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.collectors.recording.recorder import Recorder
    from tracelyze.collectors.tensors.readback import Later


class Arrivals:
    """Rows of one table. A signal calls `release` at every step, and with `wait` at the end."""

    def __init__(self, recorder: Recorder, table: str) -> None:
        self._recorder = recorder
        self._table = table
        self.waiting: deque[tuple[list[dict[str, Any]], Later | None]] = deque()

    def put(self, rows: list[dict[str, Any]], later: Later | None = None) -> None:
        """Rows to be written; `later.fill` is handed the first of them and may fill them all."""
        self.waiting.append((rows, later))
        self.release()

    def release(self, wait: bool = False) -> None:
        """Write what is complete."""
        while self.waiting:
            rows, later = self.waiting[0]
            if later is not None:
                if not wait and not later.arrived():
                    return
                later.fill(rows[0])
            self.waiting.popleft()
            for row in rows:
                self._recorder.emit(self._table, row)
