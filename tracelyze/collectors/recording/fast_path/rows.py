"""The rows of steps that are skipped: what signals read quickly, beside what held at the step before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracelyze.collectors.cadence.budget import Budget
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path.cost import SkippingCost
from tracelyze.collectors.recording.fast_path.expected import Accumulation
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.storage.stream import Names


class SkippedRows:
    """Rows of the steps that are skipped in a row, of which `allowed` many may be."""

    def __init__(self, guard: Guard, budget: Budget, dispatcher: Dispatcher) -> None:
        self.allowed = self.count = 0
        self.cost = SkippingCost()
        self._stream = guard.writer.streams["steps"]
        self._overhead = guard.overhead
        self._budget = budget
        self._dispatcher = dispatcher
        self._readers: list[Callable[[Tracked, float], tuple[Any, ...]]] = []
        self._names = Names((), {})

    def begin(self, row: dict[str, Any], allowed: float, accumulates: bool) -> None:
        """They will be like the step of which `row` is the row, and no more than so many."""
        columns, cost = self._dispatcher.fast_columns, self.cost.seconds
        self.allowed, self.count, self._readers = int(allowed), 0, columns.readers
        common = {name: row[name] for name in columns.copied if name in row}
        if accumulates:  # They are read at every step; those of a single loss are sampled.
            common |= {name: row[name] for name in ("loss_divisor", "loss_is_mean") if name in row}
        if cost:
            common["overhead"] = cost
        if common != self._names.common or self._names[3:] != columns.read:
            self._names = Names(("step", "time", "loss", *columns.read), common)

    def write(self, tracked: Tracked, time: float, loss: float) -> bool:
        """A step was skipped. Returns whether the next one may be."""
        values: list[Any] = [self._names, tracked.count, time, loss]
        for read in self._readers:
            try:
                values += read(tracked, time)
            except Exception as error:
                values += self._reading_failed(read, error)
        self._stream.append_values(values)
        self._budget.step_skipped(time)
        self.count = count = self.count + 1
        return count < self.allowed

    def end(self) -> None:
        """The row of the next step is gathered from its events."""
        count, self.count = self.count, 0
        if count:
            self._overhead.charge(self.cost.run_ends(count))

    def _reading_failed(self, read: Callable[..., Any], error: Exception) -> tuple[None, ...]:
        """The signal is switched off, and its columns of this row are empty."""
        signal: Any = getattr(read, "__self__", None)
        self._dispatcher.switch_off(signal, error)
        return (None,) * len(signal.fast_columns)


def weighted_sum(losses: list[float], accumulation: Accumulation) -> float:
    """The loss of a step that accumulates the gradients of these losses."""
    return sum([value * factor for value, factor in zip(losses, accumulation.factors, strict=True)])
