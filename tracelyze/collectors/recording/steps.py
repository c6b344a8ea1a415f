"""Steps of optimizers: each becomes a row of the table steps, which the signals fill."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.recording.fast_path.path import FastPath
from tracelyze.collectors.recording.guards import never_raises, on_training_thread
from tracelyze.collectors.recording.parts import Parts
from tracelyze.collectors.recording.wrapped_steps import WrappedSteps, inner


class Steps:
    """What the hooks on optimizers call."""

    def __init__(self, parts: Parts, fast_path: FastPath) -> None:
        program = parts.program
        self.guard = parts.guard
        self._progress = parts.progress
        self._calls, self._trainings = program.calls, program.trainings
        self._optimizers, self._manual = program.optimizers, program.manual_updates
        self._backwards = program.backwards
        self._dispatcher = parts.dispatcher
        self._fast_path = fast_path
        self._rows = parts.rows
        self._budget = parts.budget
        self._losses = parts.losses
        self._seen = parts.seen
        self._open = parts.open
        self._wrapped = WrappedSteps()

    @on_training_thread
    def begins(self, optimizer: Any) -> None:
        """An optimizer's step was called (for fused optimizers under GradScaler also when the kernel will skip)."""
        if not self._wrapped.begins(optimizer, self._optimizers.knows(optimizer)):
            self._begins(optimizer)
        elif not self._manual.paused:  # what it changes before the other one steps is no update by hand
            self._manual.in_step = True
            self._manual.optimizer_steps(optimizer)

    def _begins(self, optimizer: Any) -> None:
        if self._fast_path.active:
            self._fast_path.catch_up()
        if self.guard.thread.ident is None:
            self.guard.thread.claim()
        if not self.guard.writer.opened:
            self._open()
        self._manual.in_step = True
        if not self._manual.paused:
            self._manual.optimizer_steps(optimizer)
        self._progress.backwards_at_step = self._progress.backwards
        self._seen.step()
        tracked = self._optimizers.track(optimizer)
        if tracked.steps_early(self._progress.steps):
            self._dispatcher.resume_all()  # Signals have paused for as many steps as the turns before took.
        if not tracked.count:
            self._dispatcher.dispatch("before_first_step", tracked)
        if not self._dispatcher.nobody_listens("before_step"):
            self._dispatcher.dispatch("before_step", tracked)

    @on_training_thread
    def ends(self, optimizer: Any, skipped: bool | None = None) -> None:
        """A step is over: gather its row from the signals. `skipped` is what GradScaler did, None without one."""
        progress = self._progress
        if progress.in_backward:
            return
        if skipped:  # The scaler knows the outer one, whose step would have been that of the inner one.
            optimizer = inner(optimizer) or optimizer
        elif self._is_another_ones(optimizer):
            return
        if self._fast_path.active:
            self._fast_path.catch_up()
        tracked = self._optimizers.track(optimizer)
        progress.steps = steps = progress.steps + 1
        tracked.has_stepped(steps)
        progress.longest = max(progress.longest, tracked.count)
        manual, dispatcher, clock = self._manual, self._dispatcher, self.guard.clock
        time = clock.called_at - clock.zero
        if skipped:  # No step began.
            manual.optimizer_steps(optimizer)
        manual.in_step, manual.unchanged = False, 0
        tracked.training = self._trainings.of(tracked)
        self._backwards.step_ends(tracked)
        row: dict[str, Any] = {"optimizer": tracked.index, "step": tracked.count, "time": time}
        if skipped is not None:
            row["skipped"] = skipped
        if tracked.count == 1:
            self._losses.training_begins()
            dispatcher.dispatch("first_step", tracked)
        dispatcher.dispatch("after_step", tracked, row)
        progress.alert = False
        if steps >= dispatcher.resumes_at:
            dispatcher.resume_until(steps)
        if self._calls.unsettled:
            for call, trained in self._calls.settle():
                if not trained:
                    dispatcher.resume_listeners("settled")
                dispatcher.dispatch("settled", call, trained)
        overhead = self.guard.overhead
        self._budget.step_ended(time, overhead.seconds, steps)
        row["overhead"] = overhead.seconds - overhead.stated  # What this call takes counts with the next step.
        overhead.stated = overhead.seconds
        self._rows.put_step(row)
        self._fast_path.consider(tracked, row)

    def _is_another_ones(self, optimizer: Any) -> bool:
        """Whether the step that ends is that of an optimizer within, which has its row. Else it has begun by now."""
        if self._wrapped.ends(optimizer):
            self._manual.in_step = False
            return True
        if self._wrapped.waited(optimizer):
            self._begins(optimizer)
        self._wrapped.stepped(optimizer)
        return False

    @never_raises
    def inside_backward(self, optimizer: Any) -> None:
        """An optimizer's step was called while backward runs, perhaps on a thread of the autograd engine."""
        self._optimizers.step_inside(optimizer)
