"""Pending values: rows whose values a device has yet to deliver. They are written in order, so that a row which waits
holds up those behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

Row = dict[str, Any]


class PendingValues(Protocol):
    """Values of a row that may arrive after the step it belongs to (`tensors.readback` has some)."""

    def arrived(self) -> bool:
        """Whether they can be filled in without waiting for the device."""
        ...

    @property
    def fill(self) -> Callable[[Row], None]:
        """Fills them into the row; waits if they have not arrived."""
        ...


class PendingRows:
    """Rows of one table. A signal calls `release` at every step, and with `wait` at the end."""

    def __init__(self, emit: Callable[[str, Row], None], table: str) -> None:
        self._emit = emit
        self._table = table
        self.waiting: deque[tuple[list[Row], Sequence[PendingValues]]] = deque()

    def put(self, rows: list[Row], values: PendingValues | None = None) -> None:
        """Rows to be written; `values.fill` is handed the first of them and may fill them all."""
        self.waiting.append((rows, () if values is None else (values,)))
        self.release()

    def release(self, wait: bool = False) -> None:
        """Write what is complete."""
        while self.waiting:
            # Taken out first: an OS signal handler may train, and come here, between any two lines.
            rows, values = self.waiting.popleft()
            if not wait and not all(one.arrived() for one in values):
                self.waiting.appendleft((rows, values))
                return
            try:
                for one in values:
                    self._fill(one, rows[0])
            finally:
                for row in rows:
                    self._emit(self._table, row)

    def _fill(self, values: PendingValues, row: Row) -> None:
        values.fill(row)


class PendingSteps(PendingRows):
    """Rows of the table steps. `failed` is handed what goes wrong with some values; the rest of the row is written."""

    def __init__(self, emit: Callable[[str, Row], None], failed: Callable[[Exception], None]) -> None:
        super().__init__(emit, "steps")
        self.failed = failed
        self._deferred: list[PendingValues] = []

    @property
    def any(self) -> bool:
        """Whether a row, or the step that runs, waits for values."""
        return bool(self.waiting or self._deferred)

    def defer(self, values: PendingValues) -> None:
        """Fill these values into the row of the step that runs when the device has delivered them."""
        self._deferred.append(values)

    def put_step(self, row: Row) -> None:
        """The row of the step that runs is complete, but for what is deferred."""
        if self._deferred or self.waiting:
            self.waiting.append(([row], self._deferred))
            self._deferred = []
            self.release()
        else:
            self._emit("steps", row)

    def _fill(self, values: PendingValues, row: Row) -> None:
        try:
            values.fill(row)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.failed(error)
