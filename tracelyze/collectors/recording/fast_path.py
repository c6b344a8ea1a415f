"""Steps like those before them, of which not everybody need be told: the short way through the hooks.

A loop that has settled makes the same few calls at every step: one model, one loss, one backward, one step of one
optimizer. Where all signals either rest or can do without, the hooks then only see that this is still so, for PASSED
steps in a row, and a row gets what is read in passing (`Signal.gauge`) beside what held at the step before
(`Signal.repeats`). Anything else ends that at once, and what was passed over of the step that runs is told after all.

Not on a device, where a loss is not known before the backward begins.
"""

from __future__ import annotations

import math
import threading
import traceback
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tracelyze import redaction
from tracelyze.collectors.program.calls import LiveGraph
from tracelyze.collectors.program.manual_updates import ByHand
from tracelyze.collectors.recording.dispatch import Readings
from tracelyze.collectors.storage.stream import Names
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

if TYPE_CHECKING:
    from tracelyze.collectors.program.optimizers import Tracked
    from tracelyze.collectors.recording.recorder import Recorder

PASSED = 22  # steps in a row; with the one that is told in full a prime, which is in step with no signal's cadence
TIMED_EVERY = 16  # such rows of steps, of which one is timed and stands for the others
AWAY, BETWEEN, CALLED, IN_BACKWARD, AFTER_BACKWARD, IN_STEP = range(6)  # what was passed of a step; AWAY: none is


class _Here(threading.local):
    now: SteadyState | None = None  # of the recorder whose training this thread runs


here = _Here()


def timed(steady: SteadyState, method: Callable[..., bool]) -> Callable[..., bool]:
    """The method, with its time added up."""

    def call(*args: Any) -> bool:
        begin = perf_counter()
        try:
            return method(*args)
        finally:
            steady.spent += perf_counter() - begin

    return call


class SteadyState:
    """Of one recorder. The hooks ask whether it is `on`, and then at each of their calls whether that was the one that
    was expected: `forward`, `backward_begins`, `backward_ends`, `step_begins`, `step_ends`. If not, they take the long
    way, whose first act is `catch_up`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._calls = recorder.calls
        self._stream, self._threads = recorder.writer.streams["steps"], recorder.writer.threads
        self._tensor: Any = recorder.torch.Tensor
        self.on = False
        self.stage = AWAY
        self.model: Callable[[], Any] = lambda: None  # the module that is called next
        self._failed = False
        self._interrupted = False
        self._passed = self._allowed = 0  # steps in a row
        self._not_before = 0  # steps of the process
        self._loss = math.nan  # of the step that runs
        self._names = Names((), {})
        self._readings = Readings([])
        self._held: list[tuple[Callable[[], Any], Any]] = []  # what was so at the backward that was told
        self._plain: dict[str, Callable[..., bool]] = {
            "forward": self._forward,
            "backward_begins": self._backward_begins,
            "step_begins": self._step_begins,
            "step_ends": self._step_ends,
        }
        self._watched = {name: timed(self, method) for name, method in self._plain.items()}
        self._is_timed = False
        self._rows = 0
        self.spent = 0.0  # in timed steps
        self._cost = 0.0  # seconds of a step that is passed
        self._take(self._plain)

    def _take(self, methods: dict[str, Callable[..., bool]]) -> None:
        self.forward: Callable[[tuple[Any, ...], Any], bool] = methods["forward"]
        self.backward_begins: Callable[[Any, bool], bool] = methods["backward_begins"]
        self.step_begins: Callable[[Any], bool] = methods["step_begins"]
        self.step_ends: Callable[[Any], bool] = methods["step_ends"]

    # Whether to pass steps

    def consider(self, tracked: Tracked, row: dict[str, Any]) -> None:
        """A step has ended, of which everybody was told: may those be passed that follow, if they are like it?"""
        recorder, self._interrupted = self.recorder, False
        moments, steps = recorder.moments, recorder.steps
        model = self._calls.usual_model() if steps >= self._not_before else None
        if model is None or not moments.can_do_without() or not self._is_plain(tracked, row):
            return
        allowed = min(PASSED, moments.until() - steps)
        if allowed < 1:
            return
        self.model, self._optimizer, self._tracked = model.module, tracked.reference, weakref.ref(tracked)
        self._group = tracked.group
        self._batch_size, self._retains_graph = row["batch_size"], recorder.retains_graph
        self._readings = readings = moments.readings
        self._held = [(look, tuple([row.get(name) for name in names])) for names, look in readings.at_backward]
        common = {name: row[name] for name in readings.repeated if name in row}
        if self._cost:
            common["overhead"] = self._cost
        if common != self._names.common or self._names[3:] != readings.gauged:
            self._names = Names(("step", "time", "loss", *readings.gauged), common)
        self._rows += 1
        if self._is_timed != (self._rows % TIMED_EVERY == 1):
            self._is_timed = not self._is_timed
            self._take(self._watched if self._is_timed else self._plain)
        self._allowed, self._passed = int(allowed), 0
        if recorder.steps == steps:  # and no handler of a signal has trained meanwhile
            here.now, self.stage, self.on = self, BETWEEN, not self._interrupted

    def _is_plain(self, tracked: Tracked, row: dict[str, Any]) -> bool:
        recorder = self.recorder
        return (
            row.get("backwards") == 1
            and type(row.get("loss")) is float
            and bool(row.get("batch_size"))
            and "skipped" not in row
            and recorder.watch is None
            and not recorder.step_rows.waiting
            and not recorder.trainings.several
            and not tracked.on_cuda
            and not tracked.inside_backward
            and not isinstance(tracked.optimizer, ByHand)
            and recorder.by_hand.resting
            and not self._failed
        )

    # A step that is passed

    def _forward(self, args: tuple[Any, ...], output: Any) -> bool:
        """The module returned `output` for `args`, of which it is the first."""
        try:
            if self.stage == BETWEEN and len(args) > 1 and type(output) is self._tensor and args[0].training:
                node, given, recorder = output.grad_fn, args[1], self.recorder
                known = node is not None and type(given) is self._tensor and given.dim()
                if known and given.size(0) == self._batch_size:
                    node.metadata["tracelyze"] = LiveGraph(self._calls)
                    if recorder.hears_losses_from <= recorder.losses:
                        recorder.choose_next_loss()
                    recorder.forwards += 1
                    self.stage = CALLED
                    return True
        except Exception as error:
            self._fail(error)
        self.on = False
        return False

    def _backward_begins(self, roots: Any, retains_graph: bool) -> bool:
        try:
            as_before = type(roots) is self._tensor and retains_graph is self._retains_graph
            if as_before and self.stage == CALLED and roots.is_cpu and not roots.dim():
                loss, limit = roots.item(), self._group.loss_limit
                for look, before in self._held:
                    as_before = as_before and look() == before
                if as_before and -limit < loss < limit:
                    self.stage = IN_BACKWARD
                    self._loss = loss
                    recorder = self.recorder
                    recorder.backwards += 1
                    recorder.in_backward = True
                    return True
        except Exception as error:
            self._fail(error)
        self.on = False
        return False

    def backward_ends(self) -> bool:
        """It did, and made no optimizer step."""
        if self.stage != IN_BACKWARD or self.recorder.optimizers.inside_now is not None:
            return False
        self.recorder.in_backward = False
        self.stage = AFTER_BACKWARD
        return True

    def _step_begins(self, optimizer: Any) -> bool:
        if self.stage == AFTER_BACKWARD and self._optimizer() is optimizer:
            self.stage = IN_STEP
            return True
        self.on = False
        return False

    def _step_ends(self, optimizer: Any) -> bool:
        recorder, tracked = self.recorder, self._tracked()
        as_before = self.stage == IN_STEP and self._optimizer() is optimizer
        if tracked is None or not as_before or recorder.off or self._threads.paused:
            self.on = False
            return False
        try:
            self.stage = BETWEEN  # so that a handler that trains, and ends this, finds nothing to tell of this step
            time = perf_counter() - recorder.clock
            recorder.steps = tracked.at_step = recorder.steps + 1
            tracked.count += 1
            self._group.follow(self._loss)
            values = [self._names, tracked.count, time, self._loss]
            for gauge in self._readings.gauges:
                try:
                    values += gauge(tracked, time)
                except Exception as error:
                    values += self._gauge_failed(gauge, error)
            self._stream.append_values(values)
            recorder.budget.step_passed(time)
            self._passed += 1
            if self._passed >= self._allowed:
                self._end()
                recorder.moments.wake_if_time()
        except Exception as error:
            self._fail(error)
        return True

    # Ending it

    def interrupt(self) -> None:
        """Somebody wants to hear of the step that runs; on any thread."""
        self._interrupted = True
        self.on = False

    def leave(self) -> None:
        """The same on the thread that trains, where something changes that the call passed of this step did not see."""
        if self.stage > BETWEEN:
            self.catch_up()
        else:
            self.interrupt()

    def catch_up(self) -> None:
        """Tell what was passed over of the step that runs: it is not like those before.

        The signals hear of it as if it happened now. What they may ask for then must not have changed since, or its
        change must `leave` first.
        """
        stage, self.stage, self.on = self.stage, AWAY, False  # at once: a handler of a signal may come here, too
        recorder = self.recorder
        if stage >= CALLED and not self._passed:  # perhaps no step of this loop can be passed to its end
            self._not_before = recorder.steps + PASSED
        self._end()
        if stage >= CALLED:
            recorder.tell_call(self._calls.passed(self._batch_size), (), {})
        if stage >= IN_BACKWARD:
            recorder.tell_backward(self._loss)
        if stage == IN_BACKWARD:  # it did not end: an exception
            self._calls.check_all()
        if stage >= AFTER_BACKWARD:
            recorder.tell_backward_ended(self._loss)
            recorder.moments.wake()  # what was done to the gradients since belongs to the step that is told now
        if stage == IN_STEP:
            recorder.backwards_at_step = recorder.backwards
            recorder.by_hand.in_step = True

    def _end(self) -> None:
        passed, self._passed, self.stage, self.on = self._passed, 0, AWAY, False
        self._calls.check_next()
        if passed:
            if self._is_timed:
                cost, self.spent = self.spent / passed, 0.0
                self._cost = 0.8 * self._cost + 0.2 * cost if self._cost else cost
            self.recorder.charge(self._cost * passed)

    def _gauge_failed(self, gauge: Callable[..., Any], error: Exception) -> tuple[None, ...]:
        """The signal is switched off, and its columns of this row are empty."""
        signal: Any = getattr(gauge, "__self__", None)
        self.recorder.moments.fail(signal, error)
        return (None,) * len(signal.gauges)

    def _fail(self, error: Exception) -> None:
        if raised_by_a_signal_handler(error):
            raise error
        self._failed, self.on = True, False
        text = redaction.redact_text("".join(traceback.format_exception(error)))
        self.recorder.event("collector-error", "steady_state", text)
