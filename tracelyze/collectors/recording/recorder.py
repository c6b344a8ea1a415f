"""A recording of one training thread: its parts, put together, from `import torch` to the end of the program.

It exists from `import torch` on but stays silent until the process really trains: the run directory gets a folder for
it at the first backward, or at an exception before that. Launchers and loader workers never get there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import get_ident
from time import perf_counter
from time import time as wall_time
from typing import Any

from tracelyze.collectors.cadence.budget import Budget, Meter
from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.cadence.overhead import Overhead
from tracelyze.collectors.internals import function_modes, private_names
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.calls import Calls
from tracelyze.collectors.program.consumed.asides import Asides
from tracelyze.collectors.program.consumed.batches_in_hand import BatchesInHand
from tracelyze.collectors.program.consumed.input_order import InputOrder
from tracelyze.collectors.program.consumed.step_backwards import StepBackwards
from tracelyze.collectors.program.manual_updates import ManualUpdates
from tracelyze.collectors.program.modules.direct_calls import DirectCalls
from tracelyze.collectors.program.modules.fused_dropouts import FusedDropouts
from tracelyze.collectors.program.optimizers import Optimizers
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.program.trainings import Training, Trainings
from tracelyze.collectors.recording.backwards import Backwards
from tracelyze.collectors.recording.context import Context
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path.late_rows import LateRows
from tracelyze.collectors.recording.fast_path.path import FastPath
from tracelyze.collectors.recording.fast_path.replay import Replay
from tracelyze.collectors.recording.fast_path.rows import SkippedRows
from tracelyze.collectors.recording.fast_path.seen import SeenSteps
from tracelyze.collectors.recording.fast_path.skippable import Skippable
from tracelyze.collectors.recording.forwards import Forwards
from tracelyze.collectors.recording.guards import Guard, never_raises
from tracelyze.collectors.recording.ledger import Ledger
from tracelyze.collectors.recording.parts import Parts
from tracelyze.collectors.recording.sampling import Sampling
from tracelyze.collectors.recording.steps import Steps
from tracelyze.collectors.signals import SIGNALS
from tracelyze.collectors.signals.context import NextCall
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.storage.pending import PendingSteps
from tracelyze.collectors.storage.writer import Writer
from tracelyze.collectors.system import identity
from tracelyze.collectors.system.clock import Clock
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.system.training_thread import TrainingThread

MAX_CHANGES = 100  # of a signal's cadence that are written down


class Recorder:
    """One per process, or per thread where several train. Hooks call the methods of `forwards`, `backwards` and
    `steps`, and `fire`: none raises, and none touches what the program computes."""

    def __init__(self, torch: Any, run: Path, options: CollectOptions, thread: int = 1) -> None:
        """`thread` is the number of the training thread in its process."""
        self.torch, self.run, self.options = torch, run, options
        self.progress = progress = Progress()
        clock = Clock()
        self.writer = writer = Writer(clock.now, lambda: progress.steps, self.state_costs)
        self.guard = guard = Guard(writer, TrainingThread(thread), clock, Overhead(), *_visibility(torch))
        self.losses = losses = LossSampling()
        budget = Budget(options.budget / 100.0, dict(options.cadences), self._cadence_changed)
        self.ledger = Ledger(SIGNALS, budget, [name for name, _ in options.extensions])
        self.program = program = self._program()
        self.rows = rows = PendingSteps(writer.emit, self._values_failed)
        self.dispatcher = dispatcher = Dispatcher(progress, self._listeners_changed, self._signal_failed)
        next_call = NextCall()
        skippable = Skippable(progress, program, dispatcher, rows, next_call, torch.cuda.current_device)
        skipped_rows = SkippedRows(guard, budget, dispatcher, LateRows(torch, rows, dispatcher.raise_alert))
        seen = SeenSteps(progress)
        self.fast_path = fast_path = FastPath(torch, guard, skippable, losses, skipped_rows, seen, self.record_event)
        parts = Parts(
            torch=torch,
            options=options,
            guard=guard,
            progress=progress,
            program=program,
            losses=losses,
            next_call=next_call,
            dispatcher=dispatcher,
            rows=rows,
            seen=seen,
            budget=budget,
            ledger=self.ledger,
            record_event=self.record_event,
            open=self.open,
        )
        self.forwards = Forwards(parts, fast_path)
        self.steps = Steps(parts, fast_path)
        self.backwards = Backwards(parts, fast_path, self.steps)
        # Three parts call others that are made of them: they are told of these last.
        program.optimizers.changed = dispatcher.optimizer_changed
        program.optimizers.name_of = program.calls.parameter_name
        program.manual_updates.handler = self.steps
        fast_path.replay = Replay(torch, progress, program, dispatcher, self.forwards, self.backwards, seen)
        context = Context(parts, fast_path)
        dispatcher.listen(self.ledger.switch_on(SIGNALS, context) + self.ledger.switch_on_extensions(context))

    def _program(self) -> Program:
        """The parts that record what the program is made of, still empty."""
        progress, clock, emit = self.progress, self.guard.clock, self.writer.emit
        sites = Sites(lambda row: emit("sites", row))
        batches = BatchesInHand(progress)
        calls = Calls(self.torch, progress, clock, batches, emit)
        optimizers = Optimizers(progress, sites, emit)
        trainings = Trainings(progress, clock.now, emit, optimizers, calls.module)
        backwards = StepBackwards(progress, trainings)
        by_hand = ManualUpdates(self.torch, self.record_event)
        inputs = InputOrder(self.torch, progress)
        dropouts = FusedDropouts(self.torch, progress)
        asides = Asides(self.torch, progress, sites, batches)
        direct = DirectCalls(self.torch)
        return Program(
            sites, calls, optimizers, trainings, batches, backwards, by_hand, inputs, dropouts, asides, direct
        )

    # What is recorded

    def record_event(self, kind: str, name: str, text: str = "", **more: Any) -> None:
        """Queue a row of the table events."""
        now, step = self.guard.clock.now(), self.progress.steps
        self.writer.emit("events", {"time": now, "step": step, "kind": kind, "name": name, "text": text, **more})

    def fire(self, event: str, *args: Any) -> None:
        """Dispatch an event that is neither a call of a model, nor a backward, nor a step.

        These come at steps that are skipped, too. So what `on_training_thread` does is written out: a call less.
        """
        guard = self.guard
        trains = guard.thread.ident
        if guard.writer.off or (trains is not None and trains != get_ident()):
            return
        overhead = guard.overhead
        before = overhead.seconds
        guard.clock.called_at = begin = perf_counter()
        try:
            with guard.unseen_by_all() if guard.dispatch_modes() else guard.unseen_by_functions():
                self.dispatcher.dispatch(event, *args)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            guard.writer.stop(error)
        overhead.seconds = before + perf_counter() - begin

    @never_raises
    def logged(self, unnamed: tuple[Any, ...], values: Mapping[str, Any], batch: Any, phase: Any, step: Any) -> None:
        """The script called `tracelyze.log`, on whatever thread. That alone is reason to write a folder."""
        if not self.opened:
            if self.torch.utils.data.get_worker_info() is not None:
                return  # In a loader's worker: the training process records its batches.
            self.open()
        self.progress.log_calls += 1
        begin = perf_counter()
        self.dispatcher.dispatch("logged", unnamed, values, batch, phase, step)
        self.guard.overhead.seconds += perf_counter() - begin

    @never_raises
    def cast(self, frame: Any) -> None:
        """The script asked for a module's weights in 16 bits."""
        self.program.sites.called_by(frame, "cast")

    def training_of(self, parameter: Any) -> Training | None:
        """The training whose optimizer holds a parameter; None if that is unknown."""
        try:
            return self.program.trainings.of_parameter(parameter)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.writer.stop(error)
            return None

    # The folder and the end

    @property
    def off(self) -> bool:
        """Whether nothing is recorded any more."""
        return self.writer.off

    @property
    def opened(self) -> bool:
        """Whether there was something to write a folder for."""
        return self.writer.opened

    @property
    def ended(self) -> bool:
        """Whether the recording is over."""
        return self.writer.ended

    @property
    def folder(self) -> Path | None:
        """The folder of this process in the run directory, None before it trains."""
        return self.writer.folder

    def open(self) -> None:
        """Start writing, into a folder of this process. Any failure ends the recording, once, with one line."""
        writer, thread = self.writer, self.guard.thread
        if writer.opened or writer.off:
            return
        writer.opened = True
        try:
            facts = identity.facts(self.torch)
            facts["clock"]["zero"] = wall_time() - self.guard.clock.now()
            facts["thread"], facts["thread_name"] = thread.number, thread.name
            self.fire("opened")
            facts["signals"] = self.ledger.entries
            writer.start(self.run, facts)
            sampling = Sampling(self.guard.clock.now, self.progress, writer, self.ledger, self.dispatcher.switch_off)
            sampling.start(self.dispatcher.every_second())
        except Exception as error:
            writer.stop(error)
            if raised_by_a_signal_handler(error):
                raise

    def add_facts(self, facts: dict[str, Any]) -> None:
        """Add facts to process.json, now or when it is written."""
        self.writer.add_facts(facts)

    def flush(self) -> None:
        """Write all rows that are complete."""
        self.writer.flush()

    @never_raises
    def close(self) -> None:
        """The program has ended: write the rest."""
        if not self.opened or self.ended:
            return
        if self.fast_path.active:
            self.fast_path.catch_up()
        self.program.manual_updates.finish()
        self.writer.end()
        if self.writer.off:
            return
        for call, trained in self.program.calls.settle(final=True):
            if not trained:
                self.dispatcher.resume_listeners("settled")
            self.fire("settled", call, trained)
        self.fire("finished")
        self.rows.release(wait=True)
        self.state_costs()
        if not self.progress.steps:
            self.writer.add_facts({"backwards": self.progress.backwards})  # to explain why the run has no steps
        self.writer.close()

    @never_raises
    def state_costs(self) -> None:
        """State what every signal has cost so far."""
        now = {"time": self.guard.clock.now(), "step": self.progress.steps}
        seconds = self.guard.overhead.seconds, self.writer.seconds
        self.ledger.state_costs(self.writer.emit, now, *seconds)

    # Callbacks by which one part of the recording informs the others

    def _cadence_changed(self, meter: Meter) -> None:
        self.dispatcher.resume(meter)
        if meter.decision.changes <= MAX_CHANGES:
            why = meter.decision.why or "back to its usual cadence"
            self.record_event("cadence", meter.name, why, value=float(meter.stride))

    def _listeners_changed(self) -> None:
        self.fast_path.interrupt()

    def _signal_failed(self, signal: Signal, error: Exception) -> None:
        self.record_event("collector-error", signal.name, self.ledger.failed(signal.name, error))

    def _values_failed(self, error: Exception) -> None:
        if raised_by_a_signal_handler(error):
            raise error
        self.writer.complain(error)


Unseen = Callable[[], contextlib.AbstractContextManager[Any]]


def _visibility(torch: Any) -> tuple[Unseen, Unseen, Callable[[], int], Callable[[], int]]:
    """How to compute without being seen by `__torch_function__`, and by the program's modes besides, and how many
    modes for functions, and for operations, would see it."""
    no_functions = private_names.find(torch, private_names.NO_FUNCTION_MODES) or contextlib.nullcontext
    no_dispatch = private_names.find(torch, private_names.NO_DISPATCH_MODES) or contextlib.nullcontext
    functions = function_modes.watching(torch) or (lambda: 0)
    dispatch_modes = private_names.find(torch, private_names.DISPATCH_MODES) or (lambda: 0)

    def unseen_by_all() -> contextlib.AbstractContextManager[Any]:
        both = contextlib.ExitStack()
        both.enter_context(no_functions())
        both.enter_context(no_dispatch())
        return both

    return no_functions, unseen_by_all, functions, dispatch_modes
