"""The rows of steps that are skipped: what signals read quickly, beside what held at the step before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tracelyze.collectors.cadence.budget import Budget
from tracelyze.collectors.cadence.usual_losses import UsualLosses
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path.cost import SkippingCost
from tracelyze.collectors.recording.fast_path.expected import Expected
from tracelyze.collectors.recording.fast_path.late_rows import LONGEST, Held, LateRows
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.storage.stream import Names


class LikeStep(NamedTuple):
    """A step that was dispatched, and whose like are skipped: its row, and whether losses are read at each of them."""

    row: dict[str, Any]
    losses_are_read: bool


class SkippedRows:
    """The rows of consecutive steps that are skipped, `count` so far; no more than `allowed` may be."""

    def __init__(self, guard: Guard, budget: Budget, dispatcher: Dispatcher, late: LateRows) -> None:
        self.allowed = self.count = 0
        self.cost = SkippingCost()
        self._stream = guard.writer.streams["steps"]
        self._overhead = guard.overhead
        self._budget = budget
        self._dispatcher = dispatcher
        self._readers: list[Callable[[Tracked, float], tuple[Any, ...]]] = []
        self._names: list[Names] = []  # of the steps that are skipped, in turn
        self._late = late
        self._held: list[Held] = []  # rows of steps on a device
        self._factors: list[float] = []
        self._losses = UsualLosses()

    def begin(self, like: list[LikeStep], allowed: float) -> None:
        """At most `allowed` steps are about to be skipped; each is like one of these, in turn."""
        columns = self._dispatcher.fast_columns
        self.allowed, self.count, self._readers = int(allowed), 0, columns.readers
        known = self._names if len(self._names) == len(like) else [Names((), {})] * len(like)
        self._names = [self._named(one, before) for one, before in zip(like, known, strict=True)]

    def _named(self, like: LikeStep, before: Names) -> Names:
        """The columns of rows that are like this one, and what they have in common; `before` if they are the same."""
        columns, row = self._dispatcher.fast_columns, like.row
        common = {name: row[name] for name in columns.copied if name in row}
        if like.losses_are_read:  # at every step; those of other losses are sampled
            common |= {name: row[name] for name in ("loss_divisor", "loss_is_mean") if name in row}
        if self.cost.seconds:
            common["overhead"] = self.cost.seconds
        if common == before.common and before[3:] == columns.read:
            return before
        return Names(("step", "time", "loss", *columns.read), common)

    def write(self, tracked: Tracked, time: float, loss: float) -> bool:
        """A step was skipped. Returns whether the next one may be."""
        names = self._names
        values: list[Any] = [names[self.count % len(names)], tracked.count, time, loss]
        self._read(values, tracked, time)
        self._stream.append_values(values)
        self._budget.step_skipped(time)
        self.count = count = self.count + 1
        return count < self.allowed

    def hold(self, tracked: Tracked, time: float, losses: list[Any], expected: Expected) -> bool:
        """Make the row of a skipped step on a device, which waits for those of the steps after it."""
        names = self._names[0]
        values: list[Any] = [tracked.count, time, None]
        self._read(values, tracked, time)
        row = {**names.common, **dict(zip(names, values, strict=True))}
        self._factors, self._losses = expected.factors, expected.backwards[0].losses
        self._held = [*self._held, (row, losses)]
        self._budget.step_skipped(time)
        self.count = count = self.count + 1
        return count < self.allowed and time - self._held[0][0]["time"] < LONGEST

    def _read(self, values: list[Any], tracked: Tracked, time: float) -> None:
        for read in self._readers:
            try:
                values += read(tracked, time)
            except Exception as error:
                values += self._reading_failed(read, error)

    def end(self) -> None:
        """The row of the next step is gathered from its events."""
        count, self.count = self.count, 0
        held, self._held = self._held, []
        if held:
            self._late.put(held, self._factors, self._losses)
        if count:
            self._overhead.charge(self.cost.run_ends(count))

    def _reading_failed(self, read: Callable[..., Any], error: Exception) -> tuple[None, ...]:
        """The signal is switched off, and its columns of this row are empty."""
        signal: Any = getattr(read, "__self__", None)
        self._dispatcher.switch_off(signal, error)
        return (None,) * len(signal.fast_columns)


def weighted_sum(losses: list[float], factors: list[float]) -> float:
    """The loss of a step that accumulates the gradients of these losses."""
    return sum([value * factor for value, factor in zip(losses, factors, strict=True)])
