"""Dispatches the skipped events of a step that turned out to be unlike those before it.

Signals are called as if the events happened now. So nothing that a signal reads may have changed since they really
happened; a hook that sees such a change ends the fast path before it (`FastPath.leave`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.program.calls import Call
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.backwards import Backwards
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path import expected as events
from tracelyze.collectors.recording.fast_path.expected import Expected, SkippedCall, SkippedEvents
from tracelyze.collectors.recording.forwards import Forwards
from tracelyze.collectors.signals.gradients.microbatches import key_of


@dataclass(frozen=True)
class Replay:
    """Dispatches skipped events, through the parts of the recording that dispatch them on the full path."""

    torch: Any
    progress: Progress
    program: Program
    dispatcher: Dispatcher
    forwards: Forwards
    backwards: Backwards

    def step(self, expected: Expected, skipped: SkippedEvents) -> None:
        """Dispatch the skipped events of the step that runs, in order."""
        order, progress = expected.order[: skipped.count], self.progress
        # Each is counted again as it is dispatched: signals read these numbers.
        progress.forwards -= len(skipped.calls)
        progress.backwards -= len(skipped.losses)
        if skipped.losses_before is not None:
            expected.losses.forget_since(skipped.losses_before)
        calls, losses, loss = iter(skipped.calls), iter(skipped.losses), 0.0
        for event in order:
            if event == events.CALL:
                progress.forwards += 1
                self.forwards.dispatch(self._call(next(calls), expected), (), {})
            elif event == events.BACKWARD:
                progress.backwards += 1
                loss = next(losses)
                self.backwards.dispatch_begin(loss)
            elif event == events.BACKWARD_ENDS:
                self.backwards.dispatch_end(loss)
            else:
                self.program.manual_updates.in_step = True
        if order[-1] == events.BACKWARD:  # The backward did not return, but raised.
            self.program.calls.check_all()
        elif events.BACKWARD_ENDS in order:
            # The program may do something to the gradients before its step: paused signals resume to see it.
            self.dispatcher.resume_all()

    def _call(self, skipped: SkippedCall, expected: Expected) -> Call:
        """The call as the full path would have made it, from what was noted when it was skipped."""
        batch, key, given = skipped.batch, skipped.key, skipped.given()
        if expected.accumulation is None:
            batch = self.program.batches.used_by_skipped()
            key = None if given is None else key_of(self.torch, given)
        call = self.program.calls.replay(expected.batch_size, skipped.graph, batch)
        call.input_key = key
        call.given = [(skipped.name, skipped.given), *skipped.others]
        return call
