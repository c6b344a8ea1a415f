"""Dispatches after the fact what was skipped of a step, because it turned out to be unlike those before it.

Signals are called as if it happened now. What they may ask for then must not have changed since it really happened, or
its change must end the fast path first (`FastPath.leave`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.backwards import Backwards
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.forwards import Forwards


@dataclass(frozen=True)
class Replay:
    """The parts of a step, in order."""

    progress: Progress
    program: Program
    dispatcher: Dispatcher
    forwards: Forwards
    backwards: Backwards

    def forward(self, batch_size: int, graph: Callable[[], Any]) -> None:
        """The usual model was called with a batch of this size; `graph()` is None once its graph is gone."""
        self.forwards.dispatch(self.program.calls.replay(batch_size, graph), (), {})

    def backward_begins(self, loss: float) -> None:
        """Backward was called on this loss."""
        self.backwards.dispatch_begin(loss)

    def backward_failed(self) -> None:
        """It raised."""
        self.program.calls.check_all()

    def backward_ends(self, loss: float) -> None:
        """It returned. What was done to the gradients since belongs to the step that is dispatched now."""
        self.backwards.dispatch_end(loss)
        self.dispatcher.resume_all()

    def step_begins(self) -> None:
        """The optimizer's step was called."""
        self.progress.backwards_at_step = self.progress.backwards
        self.program.manual_updates.in_step = True
