"""Dispatches the skipped events of a step that turned out to be unlike those before it.

Signals are called as if the events happened now. So nothing that a signal reads may have changed since they really
happened; a hook that sees such a change ends the fast path before it (`FastPath.leave`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.program.call import Call
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.backwards import Backwards
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path import expected as events
from tracelyze.collectors.recording.fast_path.expected import (
    Expected,
    ExpectedBackward,
    SkippedCall,
    SkippedEvents,
)
from tracelyze.collectors.recording.fast_path.rounds import Round, SkippedRound
from tracelyze.collectors.recording.fast_path.seen import SeenSteps
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
    seen: SeenSteps

    def step(self, expected: Expected, skipped: SkippedEvents) -> None:
        """Dispatch the skipped events of the step that runs, in order."""
        order, progress = expected.order[: skipped.count], self.progress
        # Each is counted again as it is dispatched: signals read these numbers.
        progress.forwards -= len(skipped.calls) + len(skipped.asides)
        progress.backwards -= len(skipped.losses)
        if skipped.losses_before is not None:
            expected.backwards[0].losses.forget_since(skipped.losses_before)
        calls, losses = iter(skipped.calls), iter(zip(skipped.losses, expected.backwards, strict=False))
        for number, event in enumerate(order):
            self._asides(skipped, number)
            if event == events.CALL:
                progress.forwards += 1
                self.forwards.dispatch(self._call(next(calls), expected), (), {})
            elif event == events.BACKWARD:
                progress.backwards += 1
                loss, backward = next(losses)
                self.backwards.dispatch_begin((), loss)
                self._as_before(backward)
            elif event == events.BACKWARD_ENDS:
                self.backwards.dispatch_end(())
            else:
                self.program.manual_updates.in_step = True
                self.seen.step()
        self._asides(skipped, len(order))
        if order and order[-1] == events.BACKWARD:  # The backward did not return, but raised.
            self.program.calls.check_all()
        elif events.BACKWARD_ENDS in order:
            # The program may do something to the gradients before its step: paused signals resume to see it.
            self.dispatcher.resume_all()

    def _asides(self, skipped: SkippedEvents | SkippedRound, number: int) -> None:
        """Dispatch the calls without autograd before the event of this number."""
        for aside in skipped.asides:
            if aside.event == number:
                self.progress.forwards += 1
                self.program.calls.latest = aside.call
                self.forwards.dispatch(aside.call, (), {})

    def round(self, expected: Round, skipped: SkippedRound) -> None:
        """Bring up to date what is known of the program for the steps of a round that have ended, and dispatch the
        skipped events of the step that runs."""
        progress, calls = self.progress, self.program.calls
        reached = calls.reached  # by a backward that has not returned
        for call, like in zip(skipped.calls, expected.calls, strict=False):
            _fill(call, like.before)
        of_step = expected.order[skipped.step_begins : skipped.count]
        first_call = len(skipped.calls) - of_step.count(events.CALL)
        first_backward = len(skipped.losses) - of_step.count(events.BACKWARD)
        progress.forwards -= len(skipped.calls) - first_call + len(skipped.asides)
        progress.backwards -= len(skipped.losses) - first_backward
        for losses, before in reversed(skipped.losses_before):
            losses.forget_since(before)
        self._steps_that_ended(expected, skipped)
        self.seen.passed_over(skipped.calls[:first_call])
        made, begun = first_call, first_backward
        for number, event in enumerate(of_step, skipped.step_begins):
            self._asides(skipped, number)
            if event == events.CALL:
                progress.forwards += 1
                self.forwards.dispatch(skipped.calls[made], (), {})
                made += 1
            elif event == events.BACKWARD:
                progress.backwards += 1
                backward, loss = expected.backwards[begun], skipped.losses[begun]
                progress.retains_graph = backward.retains_graph
                self.backwards.dispatch_begin((), loss)
                self._as_before(backward)
                calls.reached, begun = reached, begun + 1
            elif event == events.BACKWARD_ENDS:
                calls.reached = [skipped.calls[at] for at in expected.backwards[begun - 1].reached]
                self.backwards.dispatch_end(())
            else:
                self.program.manual_updates.in_step = True
                self.seen.step()
        self._asides(skipped, skipped.count)
        if events.BACKWARD_ENDS in of_step:
            self.dispatcher.resume_all()

    def _steps_that_ended(self, expected: Round, skipped: SkippedRound) -> None:
        """The bookkeeping of the steps of a round that have their rows, without any signal.

        Those of their calls that no backward has run through yet are made known to the signals: a later step may be
        about them.
        """
        program, number = self.program, self.progress.backwards
        backwards, trainings = program.backwards, program.trainings
        order, made, begun, made_at_backward = iter(expected.order), 0, 0, 0
        number -= expected.order[: skipped.step_begins].count(events.BACKWARD)
        for step in expected.steps[: skipped.steps]:
            for event in order:
                if event == events.CALL:
                    made += 1
                elif event == events.BACKWARD:
                    made_at_backward = made
                elif event == events.BACKWARD_ENDS:
                    like = expected.backwards[begun]
                    reached = [skipped.calls[at] for at in like.reached]
                    trainings.backward_ended(reached)
                    backwards.begins()
                    self._as_before(like)
                    if backwards.running is not None and like.before is not None:
                        backwards.running.number, backwards.running.value = number + begun + 1, skipped.losses[begun]
                        backwards.running.factor = like.before.factor
                        backwards.running.micro_batches = like.before.micro_batches
                    backwards.ends(reached, skipped.calls[made - 1] if made else None)
                    begun += 1
                elif event == events.STEP_ENDS:
                    break
            tracked = step.seen.tracked()
            if tracked is not None:
                backwards.step_ends(tracked)
            self.seen.latest.append(step.seen)
        used = {at for one in expected.backwards[:begun] for at in one.reached}
        for at, call in enumerate(skipped.calls[:made]):
            if at not in used:
                call.of_earlier_step = True
                call.given = call.given if at >= made_at_backward else ()  # What is asked of it is asked at a backward.
                self.dispatcher.dispatch("forward", call, (), {})
                program.calls.await_outcome(call)

    def _as_before(self, expected: ExpectedBackward) -> None:
        """Fill in what was found to be as it was at the backward before this one, which was dispatched."""
        running, before = self.program.backwards.running, expected.before
        if running is not None and before is not None:
            running.line = before.line
            if expected.read is not None:
                running.divisor, running.is_part, running.is_mean = before.divisor, before.is_part, before.is_mean

    def _call(self, skipped: SkippedCall, expected: Expected) -> Call:
        """The call as the full path would have made it, from what was noted when it was skipped."""
        batch, key, given = skipped.batch, skipped.key, skipped.given()
        if not expected.factors:
            batch = self.program.batches.used_by_skipped()
            key = None if given is None else key_of(self.torch, given)
        call = self.program.calls.replay(expected.batch_size, skipped.graph, batch)
        call.input_key = key
        call.given = skipped.inputs or [("0", skipped.given)]
        return call


def _fill(call: Call, before: Call) -> None:
    """Fill in what a skipped call has in common with the one that it was found to be like."""
    call.batch_size, call.autocast = before.batch_size, before.autocast
    call.dropouts, call.statistics, call.sensitive = before.dropouts, before.statistics, before.sensitive
    call.replayed = True
