"""The fast path through the hooks: steps that are like those before them are skipped, and leave a row all the same.

A loop that has settled makes the same few calls at every step: one model, one loss, one backward, one step of one
optimizer. Where every signal is either paused or can do without, the hooks then only check that this is still so, for
SKIPPED_STEPS steps in a row, and a row gets what signals read quickly (`Signal.fast_values`) beside what held at the
step before (`Signal.copied_columns`). Any other call ends that at once, and the events that were skipped of the step
that runs are dispatched after all (`replay.py`).

There is no fast path on a device, where the loss is not known before the backward begins.
"""

from __future__ import annotations

import math
import threading
import traceback
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from tracelyze import redaction
from tracelyze.collectors.cadence.budget import Budget
from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.program.calls import LiveGraph
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.recording.dispatch import FastColumns
from tracelyze.collectors.recording.fast_path.skippable import Skippable
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.storage.stream import Names
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

SKIPPED_STEPS = 22  # in a row; 23 with the full step after them, a prime: it keeps step with no signal's cadence
TIMED_EVERY = 16  # Of so many runs of skipped steps one is timed, and stands for the others.

# What was skipped of the step that runs: a stage of it, or AWAY where nothing is being skipped.
AWAY, BETWEEN, CALLED, IN_BACKWARD, AFTER_BACKWARD, IN_STEP = range(6)


class _ThisThread(threading.local):
    fast_path: FastPath | None = None  # of the recording whose training this thread runs


this_thread = _ThisThread()


class ReplayedStep(Protocol):
    """Dispatches what was skipped (`replay.Replay`)."""

    def forward(self, batch_size: int, graph: Callable[[], Any]) -> None: ...

    def backward_begins(self, loss: float) -> None: ...

    def backward_failed(self) -> None: ...

    def backward_ends(self, loss: float) -> None: ...

    def step_begins(self) -> None: ...


class Run:
    """Steps that are skipped in a row: what each of them must look like, and what their rows have in common."""

    __slots__ = (
        "allowed", "batch_size", "guards", "loss", "names", "optimizer", "readers", "retains_graph", "skipped",
        "tracked", "training",
    )  # fmt: skip

    def __init__(self) -> None:
        self.allowed = self.skipped = 0  # steps
        self.optimizer: Callable[[], Any] = _none
        self.tracked: Callable[[], Tracked | None] = _none
        self.training: Any = None
        self.batch_size = 0
        self.retains_graph = False
        self.guards: list[tuple[Callable[[], Any], Any]] = []  # what to read, and its value at the last full step
        self.readers: list[Callable[[Tracked, float], tuple[Any, ...]]] = []
        self.names = Names((), {})
        self.loss = math.nan  # of the step that runs


class SkippingCost:
    """Seconds that the hooks take for a step that is skipped, measured in some of the runs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.timed = False  # The run of skipped steps that is going on is timed.
        self.spent = 0.0  # seconds in that run so far
        self._runs = 0

    def run_begins(self) -> bool:
        """Whether to time this run, other than the one before."""
        self._runs += 1
        before, self.timed = self.timed, self._runs % TIMED_EVERY == 1
        return self.timed != before

    def run_ends(self, skipped: int) -> float:
        """Seconds that the run of so many steps took."""
        if self.timed:
            cost, self.spent = self.spent / skipped, 0.0
            self.seconds = 0.8 * self.seconds + 0.2 * cost if self.seconds else cost
        return self.seconds * skipped


def timed(cost: SkippingCost, method: Callable[..., bool]) -> Callable[..., bool]:
    """The method, with its time added up."""

    def call(*args: Any) -> bool:
        begin = perf_counter()
        try:
            return method(*args)
        finally:
            cost.spent += perf_counter() - begin

    return call


class FastPath:
    """Of one recording. The hooks ask whether it is `on`, and then at each of their calls whether that was the one
    that was expected: `forward`, `backward_begins`, `backward_ends`, `step_begins`, `step_ends`. If not, they take the
    full path, whose first act is `catch_up`."""

    def __init__(
        self,
        tensor: Any,
        guard: Guard,
        skippable: Skippable,
        losses: LossSampling,
        budget: Budget,
        record_event: Callable[[str, str, str], None],
    ) -> None:
        """`tensor` is the class torch.Tensor. Steps are skipped as soon as there is a `replay`."""
        self.on = False
        self.stage = AWAY
        self.model: Callable[[], Any] = _none  # the module that is called next
        self.progress = skippable.progress
        self.losses = losses
        self.cost = SkippingCost()
        self.replay: ReplayedStep | None = None
        self._tensor = tensor
        self._function_modes, self._dispatch_modes = guard.function_modes, guard.dispatch_modes
        self._guard = guard
        self._skippable = skippable
        self._program = skippable.program
        self._stream = guard.writer.streams["steps"]
        self._budget = budget
        self._record_event = record_event
        self._interrupted = False
        self._in_train: Callable[[Any], bool] = bool
        self._graph: Callable[[], Any] = _none  # of the latest call that was skipped
        self._run = Run()
        self._use(timed=False)

    def _use(self, timed: bool) -> None:
        """What the hooks call from now on: timed runs have methods of their own, so that the others pay nothing."""
        wrap = self._timed if timed else _as_it_is
        self.forward: Callable[[tuple[Any, ...], Any], bool] = wrap(self._forward)
        self.backward_begins: Callable[[Any, bool], bool] = wrap(self._backward_begins)
        self.step_begins: Callable[[Any], bool] = wrap(self._step_begins)
        self.step_ends: Callable[[Any], bool] = wrap(self._step_ends)

    def _timed(self, method: Callable[..., bool]) -> Callable[..., bool]:
        return timed(self.cost, method)

    # Whether to skip steps

    def consider(self, tracked: Tracked, row: dict[str, Any]) -> None:
        """A step has ended whose events were dispatched: may those be skipped that follow, if they are like it?"""
        skippable, progress, self._interrupted = self._skippable, self.progress, False
        steps = progress.steps
        model = skippable.model(tracked, row)
        if model is None or self.replay is None:
            return
        allowed = min(SKIPPED_STEPS, skippable.steps())
        if allowed < 1:
            return
        run = self._run
        self.model, self._in_train = model.module, model.in_train
        run.optimizer, run.tracked = tracked.reference, weakref.ref(tracked)
        run.training = tracked.training
        run.batch_size, run.retains_graph = row["batch_size"], progress.retains_graph
        self._prepare_rows(row, skippable.dispatcher.fast_columns)
        if self.cost.run_begins():
            self._use(timed=self.cost.timed)
        run.allowed, run.skipped = int(allowed), 0
        if progress.steps == steps:  # and no handler of a signal has trained meanwhile
            this_thread.fast_path, self.stage, self.on = self, BETWEEN, not self._interrupted

    def _prepare_rows(self, row: dict[str, Any], columns: FastColumns) -> None:
        run = self._run
        run.readers = columns.readers
        run.guards = [(read, tuple([row.get(name) for name in names])) for names, read in columns.guards]
        common = {name: row[name] for name in columns.copied if name in row}
        if self.cost.seconds:
            common["overhead"] = self.cost.seconds
        if common != run.names.common or run.names[3:] != columns.read:
            run.names = Names(("step", "time", "loss", *columns.read), common)

    # A step that is skipped

    def _forward(self, args: tuple[Any, ...], output: Any) -> bool:
        """The module returned `output` for `args`, of which it is the first."""
        try:
            expected = self.stage == BETWEEN and len(args) > 1 and not self._function_modes()
            if expected and type(output) is self._tensor and self._in_train(args[0]):
                node, given, losses = output.grad_fn, args[1], self.losses
                known = node is not None and type(given) is self._tensor and given.dim()
                if known and given.size(0) == self._run.batch_size:
                    node.metadata["tracelyze"] = graph = LiveGraph(self._program.calls)
                    self._graph = weakref.ref(graph)
                    if losses.next <= losses.count:
                        losses.choose_next()
                    self.progress.forwards += 1
                    self.stage = CALLED
                    return True
        except Exception as error:
            self._fail(error)
        self.on = False
        return False

    def _backward_begins(self, roots: Any, retains_graph: bool) -> bool:
        run = self._run
        try:
            as_before = type(roots) is self._tensor and retains_graph is run.retains_graph
            as_before = as_before and self.stage == CALLED and not self._function_modes() and not self._dispatch_modes()
            if as_before and roots.is_cpu and not roots.dim():
                loss, limit = roots.item(), run.training.loss_limit
                for read, before in run.guards:
                    as_before = as_before and read() == before
                if as_before and -limit < loss < limit:
                    self.stage = IN_BACKWARD
                    run.loss = loss
                    progress = self.progress
                    progress.backwards += 1
                    progress.in_backward = True
                    return True
        except Exception as error:
            self._fail(error)
        self.on = False
        return False

    def backward_ends(self) -> bool:
        """It did, and made no optimizer step."""
        if self.stage != IN_BACKWARD or self._program.optimizers.inside_now is not None:
            return False
        self.progress.in_backward = False
        self.stage = AFTER_BACKWARD
        return True

    def _step_begins(self, optimizer: Any) -> bool:
        if self.stage == AFTER_BACKWARD and self._run.optimizer() is optimizer:
            self.stage = IN_STEP
            return True
        self.on = False
        return False

    def _step_ends(self, optimizer: Any) -> bool:
        run, guard = self._run, self._guard
        tracked, writer = run.tracked(), guard.writer
        as_before = self.stage == IN_STEP and run.optimizer() is optimizer
        if tracked is None or not as_before or writer.off or writer.threads.paused:
            self.on = False
            return False
        try:
            self.stage = BETWEEN  # so that a handler that trains, and ends this, finds nothing to replay of this step
            time = perf_counter() - guard.clock.zero
            progress = self.progress
            progress.steps = tracked.at_step = progress.steps + 1
            tracked.count += 1
            if tracked.count > progress.longest:
                progress.longest = tracked.count
            run.training.follow(run.loss)
            values = [run.names, tracked.count, time, run.loss]
            for read in run.readers:
                try:
                    values += read(tracked, time)
                except Exception as error:
                    values += self._reading_failed(read, error)
            self._stream.append_values(values)
            self._budget.step_skipped(time)
            run.skipped += 1
            if run.skipped >= run.allowed:
                self._end()
                dispatcher = self._skippable.dispatcher
                if progress.steps >= dispatcher.resumes_at:
                    dispatcher.resume_until(progress.steps)
        except Exception as error:
            self._fail(error)
        return True

    # Ending it

    def interrupt(self) -> None:
        """Somebody needs the events of the step that runs; on any thread."""
        self._interrupted = True
        self.on = False

    def leave(self) -> None:
        """The same on the thread that trains, where something changes that the skipped part of the step did not see."""
        if self.stage > BETWEEN:
            self.catch_up()
        else:
            self.interrupt()

    def catch_up(self) -> None:
        """Dispatch what was skipped of the step that runs: it is not like those before."""
        run, replay = self._run, self.replay
        stage, self.stage, self.on = self.stage, AWAY, False  # at once: a handler of a signal may come here, too
        if stage >= CALLED and not run.skipped:
            self._skippable.not_before = self.progress.steps + SKIPPED_STEPS  # Perhaps no step can be skipped whole.
        self._end()
        if replay is None:
            return
        if stage >= CALLED:
            replay.forward(run.batch_size, self._graph)
        if stage >= IN_BACKWARD:
            replay.backward_begins(run.loss)
        if stage == IN_BACKWARD:  # It did not end: an exception.
            replay.backward_failed()
        if stage >= AFTER_BACKWARD:
            replay.backward_ends(run.loss)
        if stage == IN_STEP:
            replay.step_begins()

    def _end(self) -> None:
        skipped, self._run.skipped, self.stage, self.on = self._run.skipped, 0, AWAY, False
        self._program.calls.check_next()
        if skipped:
            self._guard.overhead.charge(self.cost.run_ends(skipped))

    def _reading_failed(self, read: Callable[..., Any], error: Exception) -> tuple[None, ...]:
        """The signal is switched off, and its columns of this row are empty."""
        signal: Any = getattr(read, "__self__", None)
        self._skippable.dispatcher.switch_off(signal, error)
        return (None,) * len(signal.fast_columns)

    def _fail(self, error: Exception) -> None:
        if raised_by_a_signal_handler(error):
            raise error
        self.on = False
        self._skippable.not_before = math.inf
        text = redaction.redact_text("".join(traceback.format_exception(error)))
        self._record_event("collector-error", "fast_path", text)


def _none() -> None:
    """In the place of a weak reference that refers to nothing."""


def _as_it_is(method: Callable[..., bool]) -> Callable[..., bool]:
    return method
