"""Whether the steps that follow one may be skipped if they are like it (fast_path)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.program.consumed.step_backwards import Backward
from tracelyze.collectors.program.manual_updates import ManualOptimizer
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path.expected import Expected, ExpectedBackward, order_of
from tracelyze.collectors.recording.fast_path.late_rows import SHORT
from tracelyze.collectors.signals.context import NextCall
from tracelyze.collectors.storage.pending import PendingSteps


@dataclass
class Skippable:
    """Decides whether steps may be skipped. None is before the process has made `not_before` steps."""

    progress: Progress
    program: Program
    dispatcher: Dispatcher
    rows: PendingSteps
    next_call: NextCall
    current_device: Callable[[], int]  # index of the device on which torch computes, if it names none
    not_before: float = 0
    order: tuple[int, ...] = ()  # of the latest step that was not skipped; () if it is not known

    def expected(self, tracked: Tracked, row: dict[str, Any]) -> Expected | None:
        """What the following steps must look like to be skipped; None if none may be.

        They must be like the step that has just ended; `row` is its row.
        """
        before, self.order = self.order, self._order(row)
        program = self.program
        model = program.calls.usual_model() if self.progress.steps >= self.not_before else None
        if model is None or not self.order or (len(self.order) > len(order_of(1, False)) and before != self.order):
            return None
        if tracked.gap != 1 or not self.dispatcher.steps_may_be_skipped():
            return None
        device = self.device(tracked, row)
        if device is None and not self.is_plain(tracked, row):
            return None
        own = program.backwards.of_step
        if len(own) > 1 and not _accumulates(own, row):
            return None
        losses = tracked.training.losses(program.trainings.reached_models)
        guards = self.guards(row)
        backwards = [ExpectedBackward(losses, self.progress.retains_graph, guards, device=device) for _ in own]
        if len(own) > 1:
            for one, like in zip(backwards, own, strict=True):
                one.read, one.before = read_of(like), like
        return Expected(
            self.order,
            program.fused_dropouts.next_model(model.module),
            model.trains,
            tracked.reference,
            weakref.ref(tracked),
            row["batch_size"] // len(own),
            backwards,
            [one.factor for one in own if one.factor is not None] if len(own) > 1 else [],
            device,
        )

    def guards(self, row: dict[str, Any]) -> list[tuple[Callable[[], Any], Any]]:
        """What to read as a backward begins, and what it must be for a step like the one of this row."""
        guards = self.dispatcher.fast_columns.guards
        return [(read, tuple([row.get(name) for name in names])) for names, read in guards]

    def rounds(self, most: int, steps: int, backwards: int, calls: int) -> float:
        """How many rounds may be skipped before a signal needs the events of one, and at most `most` steps of them.

        `steps`, `backwards`, `calls`: how many of each a round has.
        """
        dispatcher, progress = self.dispatcher, self.progress
        left = min(most, dispatcher.next_full_step() - progress.steps) // steps
        if left > 0:
            left = min(left, (dispatcher.next_full_backward() - progress.backwards - 1) // backwards)
        return min(left, self.calls_left() // calls) if left > 0 else left

    def calls_left(self) -> float:
        """How many calls may be skipped before a signal needs one."""
        return self.dispatcher.next_full_call() - self.progress.forwards - 1

    def _order(self, row: dict[str, Any]) -> tuple[int, ...]:
        """The events of the step in order; () where its backwards are not in the order that the fast path knows."""
        backwards, progress = row.get("backwards"), self.progress
        in_closure = progress.backwards - progress.backwards_at_step
        return order_of(backwards, in_closure == 1) if backwards and in_closure <= 1 else ()

    def is_plain(self, tracked: Tracked, row: dict[str, Any]) -> bool:
        """Whether the step ran on the CPU with a loss that is known, and nothing else is going on."""
        known = type(row.get("loss")) is float and not self.rows.any and not tracked.on_cuda
        return known and self._nothing_else_goes_on(tracked, row)

    def device(self, tracked: Tracked, row: dict[str, Any]) -> Any:
        """The device that the step ran on, if it was short and its losses are there, and nothing else is going on; None
        otherwise. Where the host waits for the device anyway, nothing is gained by skipping steps."""
        if not tracked.on_cuda or not row.get("seconds", SHORT) < SHORT or not self._nothing_else_goes_on(tracked, row):
            return None
        own = self.program.backwards.of_step
        devices = {getattr(one.value, "device", None) for one in own}
        if len(devices) != 1 or (len(own) == 1 and own[0].factor not in (None, 1.0)):
            return None
        (device,) = devices
        return device if device is not None and self.is_current(device) else None

    def is_current(self, device: Any) -> bool:
        """Whether what is computed on this device is queued behind the training's own work there."""
        return bool(device.type == "cuda" and device.index == self.current_device())

    def trains_alone(self, tracked: Tracked) -> bool:
        """Whether no optimizer of another training than this one's is likely to step."""
        program = self.program
        alone = not program.trainings.several
        return alone or all(one.training is tracked.training for one in program.optimizers.active())

    def _nothing_else_goes_on(self, tracked: Tracked, row: dict[str, Any]) -> bool:
        return (
            bool(row.get("batch_size"))
            and "skipped" not in row
            and self.next_call.watch is None
            and self.next_call.given is None
            and self.trains_alone(tracked)
            and not tracked.inside_backward
            and not isinstance(tracked.optimizer, ManualOptimizer)
            and self.program.manual_updates.paused
        )


def _accumulates(backwards: list[Backward], row: dict[str, Any]) -> bool:
    """Whether each of a step's backwards is of a batch of its own, all of one size."""
    sizes = {call.batch_size for one in backwards for call in one.calls}
    # A call that returned several tensors may stand in the list more than once.
    calls = len({id(call) for one in backwards for call in one.calls})
    if row.get("microbatches") != len(backwards) or calls != len(backwards) or len(sizes) != 1:
        return False
    return sizes == {row["batch_size"] / len(backwards)} and all(one.factor is not None for one in backwards)


def read_of(one: Backward) -> tuple[float | None, bool, bool] | None:
    """What the signal loss has read of the graph behind the loss of a backward."""
    return None if one.is_mean is None else (None if one.is_part else one.divisor, one.is_part, one.is_mean)
