"""Whether the steps that follow one may be skipped if they are like it (fast_path)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.program.manual_updates import ManualOptimizer
from tracelyze.collectors.program.models import Model
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.signals.context import NextCall
from tracelyze.collectors.storage.pending import PendingSteps


@dataclass
class Skippable:
    """What has to be so. `not_before` is the number of steps of the process before which none is skipped."""

    progress: Progress
    program: Program
    dispatcher: Dispatcher
    rows: PendingSteps
    next_call: NextCall
    not_before: float = 0

    def model(self, tracked: Tracked, row: dict[str, Any]) -> Model | None:
        """The model that every step calls once, if steps like this one, of which `row` is the row, may be skipped."""
        model = self.program.calls.usual_model() if self.progress.steps >= self.not_before else None
        if model is None or not self.dispatcher.steps_may_be_skipped() or not self._is_plain(tracked, row):
            return None
        return model

    def steps(self) -> float:
        """How many steps may be skipped before somebody needs one."""
        return self.dispatcher.next_full_step() - self.progress.steps

    def _is_plain(self, tracked: Tracked, row: dict[str, Any]) -> bool:
        """Whether the step was one backward on the CPU with a loss that is known, and nothing else is going on."""
        return (
            row.get("backwards") == 1
            and type(row.get("loss")) is float
            and bool(row.get("batch_size"))
            and "skipped" not in row
            and self.next_call.watch is None
            and not self.rows.any
            and not self.program.trainings.several
            and not tracked.on_cuda
            and not tracked.inside_backward
            and not isinstance(tracked.optimizer, ManualOptimizer)
            and self.program.manual_updates.paused
        )
