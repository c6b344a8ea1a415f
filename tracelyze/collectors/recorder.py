"""What happens with all that the hooks see: signals turn moments of the training into rows, a thread writes them.

The recorder exists from `import torch` on but stays silent until the process really trains: the run directory gets a
folder for it at the first backward, or at an exception before that. Launchers and loader workers never get there.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracelyze import redaction
from tracelyze.collectors import optimizers, sampling
from tracelyze.collectors.budget import TIMED_EVERY, TIMED_FIRST, Budget, Meter
from tracelyze.collectors.by_hand import HandUpdates
from tracelyze.collectors.calls import Calls, tensors_of
from tracelyze.collectors.ledger import Ledger
from tracelyze.collectors.optimizers import InsideBackward, Tracked
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.own_threads import Threads
from tracelyze.collectors.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.readback import Later
from tracelyze.collectors.signals import SIGNALS
from tracelyze.collectors.signals.signal import MOMENTS, Signal, Unavailable, Watch
from tracelyze.collectors.sites import Sites
from tracelyze.collectors.trainings import Group, Trainings
from tracelyze.collectors.writer import Writer


def _never_raises(method: Callable[..., None]) -> Callable[..., None]:
    """An error of ours in what the hooks call ends the recording; the program does not see it."""

    @functools.wraps(method)
    def safe(self: Recorder, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.writer.stop(error)

    return safe


class Recorder:
    """One per process, or per thread where several train. Its methods are called by the hooks, never raise, and never
    touch what the program computes."""

    def __init__(self, torch: Any, run: Path, options: CollectOptions, thread: int = 1) -> None:
        self.torch = torch
        self.thread = thread  # number of the training thread in its process
        self.thread_name = ""
        self.options = options
        self.off = False
        self.steps = 0
        self.backwards = 0
        self.overhead = 0.0
        self.forwards = 0
        self.log_calls = 0
        self.losses = 0  # loss functions that returned, and
        self.dropouts = 0  # dropouts that really dropped: the hooks compare before and after a call
        self.watch: Watch | None = None  # looks into the next outermost module call
        self.alert = False  # this step is out of the ordinary: sampled signals look at it
        self.loader_in_hand: int | None = None
        self.backward_site: int | None = None
        self.retains_graph = False  # the latest backward keeps its graph on request
        self.prepared = False
        self.run = run
        self._owner: int | None = None
        self._calls_failed = False
        self._overhead_reported = 0.0
        self._clock = time.perf_counter()
        self._pending: deque[tuple[dict[str, Any], list[Later]]] = deque()
        self._readbacks: list[Later] = []
        self._until_timed = 1
        self._timed = 0
        self.writer = Writer(self)
        self.budget = Budget(options.budget / 100.0, dict(options.cadences), self._cadence_changed)
        self._optimizers: weakref.WeakKeyDictionary[Any, Tracked] = weakref.WeakKeyDictionary()
        self._optimizer_count = 0
        self._active: list[weakref.ref[Tracked]] = []
        self._inside: weakref.WeakKeyDictionary[Any, InsideBackward] = weakref.WeakKeyDictionary()
        self._inside_now: InsideBackward | None = None
        self.in_backward = False
        self.clipped: Group | None = None  # the training whose gradients are being clipped, where there are several
        self.reached: frozenset[int] = frozenset()  # numbers of the models that the last backward ran through
        self.group: Group | None = None  # the training to which the backward belongs that has just returned
        self._hand: HandUpdates | None = HandUpdates(self)
        self.sites = Sites(lambda row: self.emit("sites", row))
        self.calls = Calls(self)
        self.trainings = Trainings(self)
        self.ledger = Ledger(SIGNALS)
        self._moments: dict[str, list[tuple[Signal, Callable[..., None]]]] = {moment: [] for moment in MOMENTS}
        for kind in SIGNALS:
            self._switch_on(kind)

    # Time and rows

    def now(self) -> float:
        """Seconds on the process's clock, whose zero process.json relates to wall time."""
        return time.perf_counter() - self._clock

    @property
    def owner(self) -> int | None:
        """Identifier of the thread that trains; None before the first backward."""
        return self._owner

    def emit(self, table: str, row: dict[str, Any]) -> None:
        """Queue a row for the disk."""
        if not self.off:
            self.writer.emit(table, row)

    def event(self, kind: str, name: str, text: str = "", **more: Any) -> None:
        """Queue a row of the table events."""
        self.emit("events", {"time": self.now(), "step": self.steps, "kind": kind, "name": name, "text": text, **more})

    # Moments

    def fire(self, moment: str, *args: Any) -> None:
        """Tell every signal that wants this moment. An error switches that signal off, and nothing else."""
        if self.off or not self._is_owner():
            return
        start = time.perf_counter()
        self._until_timed -= 1
        if self._until_timed:
            for signal, method in self._moments[moment]:
                try:
                    method(*args)
                except Exception as error:
                    self._fail(signal, error)
        else:
            self._fire_timed(moment, args)
        self.overhead += time.perf_counter() - start

    def _fire_timed(self, moment: str, args: tuple[Any, ...]) -> None:
        """The same for one in so many moments, with the time of every signal; sampled ones have it in their meters."""
        self._timed += 1
        self._until_timed = weight = 1 if self._timed < TIMED_FIRST else TIMED_EVERY
        for signal, method in self._moments[moment]:
            begin = time.perf_counter()
            try:
                method(*args)
            except Exception as error:
                self._fail(signal, error)
            if not signal.sampled:
                signal.meter.seconds += weight * (time.perf_counter() - begin)

    def prepare(self) -> None:
        """A model is about to be called for the first time: import what writing takes, before there are activations.

        What an import allocates stays. Among the activations of a first step it would keep the training from reusing
        its own memory: twice the page faults at every later step, 8 % of a CNN's step time, measured.
        """
        self.prepared = True
        with contextlib.suppress(Exception):  # tried again, and reported, when there is something to write
            import pyarrow.ipc  # noqa: F401

    @_never_raises
    def forward(
        self, module: Any, args: Any, kwargs: Any, output: Any, start: float, dropouts: int, losses: int
    ) -> None:
        """An outermost module call, begun at `start`, has returned; so many dropouts and losses were called in it."""
        self.forwards += 1
        if self.off or self._calls_failed or not self._is_owner():
            return
        begin = time.perf_counter()
        try:
            call = self.calls.record(module, args, kwargs, output, start - self._clock, dropouts)
        except Exception as error:  # a module that cannot be hashed, say: steps can be recorded without the calls
            self._calls_failed = True
            self.event("collector-error", "calls", redaction.redact_text("".join(traceback.format_exception(error))))
            return
        self.overhead += time.perf_counter() - begin
        if call is None:
            return
        self.fire("forward", call)
        self.fire("called", call, args, kwargs)
        if losses:  # a model that computes its own loss returns it
            for value in tensors_of(self.torch, output):
                self.loss_returned(value)

    @_never_raises
    def loss_returned(self, value: Any) -> None:
        """A loss function returned to the script. Matters in evaluation passes; backward shows the others."""
        if isinstance(value, self.torch.Tensor) and value.dim() == 0:
            self.fire("loss", value)

    @_never_raises
    def loss_called(self, function: str, args: Any, kwargs: Any, value: Any) -> None:
        """A loss function of torch.nn.functional was called with these arguments, by a module or by the script."""
        self.fire("loss_call", function, args, kwargs, value)

    @_never_raises
    def backward_begins(self, roots: Any, retains_graph: bool = False) -> None:
        """`torch.autograd.backward` was called by the program, perhaps with `retain_graph=True`."""
        if self.off or not self.claim():
            return
        if not self.opened:
            self.open()
        self._by_hand(lambda hand: hand.backward_begins(roots))
        self.backwards += 1
        self.retains_graph = retains_graph
        self.calls.backward_begins()
        self.fire("before_backward", roots)
        self.in_backward = True

    @_never_raises
    def backward_ends(self, roots: Any) -> None:
        """It returned."""
        self.in_backward = False
        if self.off or not self._is_owner():
            return
        calls = self.calls.reached
        self.reached = self.trainings.reached(calls)
        self.group = self.trainings.of_models(self.reached)
        if self.group is not None and calls:
            self.group.latest = calls[0]
        self.fire("after_backward", roots)
        inside, self._inside_now = self._inside_now, None
        if inside is not None:
            self.step_begins(inside)
            self.step_ends(inside)
        self._by_hand(lambda hand: hand.backward_ends())

    def _by_hand(self, tell: Callable[[HandUpdates], None]) -> None:
        """Watch for updates without an optimizer, as long as no optimizer has stepped."""
        if self._hand is None:
            return
        if any(isinstance(tracked.optimizer, self.torch.optim.Optimizer) for tracked in self.tracked()):
            self._hand = None
            return
        try:
            tell(self._hand)
        except Exception as error:
            self._hand = None
            self.event("collector-error", "by_hand", redaction.redact_text(f"{type(error).__name__}: {error}"))

    @_never_raises
    def step_begins(self, optimizer: Any) -> None:
        """An optimizer's step was called (for fused optimizers under GradScaler also when the kernel will skip)."""
        if self.in_backward:
            self._steps_inside(optimizer)
            return
        if self.off or not self._is_owner():
            return
        if self._owner is None:
            self.claim()
        if not self.opened:
            self.open()
        self.fire("before_step", self.track(optimizer))

    def _steps_inside(self, optimizer: Any) -> None:
        """A hook on a gradient makes an optimizer step while backward runs: all that do are one and step at its end."""
        inside = self._inside_now
        if inside is None or id(optimizer) not in inside.members:
            inside = self._inside.get(optimizer) or inside or InsideBackward()
            if optimizer not in self._inside:
                self._inside[optimizer] = inside
                inside.add(optimizer)
            self._inside_now = self._inside_now or inside

    @_never_raises
    def step_ends(self, optimizer: Any, skipped: bool | None = None) -> None:
        """A step is over: gather its row from the signals. `skipped` is what GradScaler did, None without one."""
        if self.in_backward or self.off or not self._is_owner():
            return
        tracked = self.track(optimizer)
        tracked.count += 1
        self.steps += 1
        self._note_activity(tracked)
        tracked.group = self.trainings.of(tracked)
        row: dict[str, Any] = {"optimizer": tracked.index, "step": tracked.count, "time": self.now()}
        if skipped is not None:
            row["skipped"] = skipped
        self._readbacks = []
        self.fire("after_step", tracked, row)
        self.alert = False
        self.calls.settle()
        self.budget.step_ended(row["time"], self.overhead, self.steps)
        row["overhead"] = self.overhead - self._overhead_reported
        self._overhead_reported = self.overhead
        self._pending.append((row, self._readbacks))
        self._release()

    @_never_raises
    def logged(self, *said: Any) -> None:
        """The script called `tracelyze.log`, on whatever thread. That alone is reason to write a folder."""
        if not self.opened:
            if self.torch.utils.data.get_worker_info() is not None:
                return  # a loader's worker: its batches are the training process's to speak of
            self.open()
        self.log_calls += 1
        start = time.perf_counter()
        for signal, method in self._moments["logged"]:
            try:
                method(*said)
            except Exception as error:
                self._fail(signal, error)
        self.overhead += time.perf_counter() - start

    def later(self, part: Later) -> None:
        """Fill part of the current step's row when the device has delivered it."""
        self._readbacks.append(part)

    def track(self, optimizer: Any) -> Tracked:
        """The record of this optimizer; a new one, with its row in the table optimizers, if it was not seen before."""
        tracked = self._optimizers.get(optimizer)
        if tracked is None:
            tracked = self._optimizers[optimizer] = Tracked(optimizer, self._optimizer_count)
            self._optimizer_count += 1
            sites = {"site": self.sites.here("step"), "backward_site": self.backward_site}
            self.emit("optimizers", optimizers.describe(tracked) | sites)
        return tracked

    def _note_activity(self, tracked: Tracked) -> None:
        if tracked.at_step:
            tracked.gap = self.steps - tracked.at_step
        else:
            self._active = [ref for ref in self._active if ref() is not None] + [weakref.ref(tracked)]
        tracked.at_step = self.steps

    def active(self) -> list[Tracked]:
        """The optimizers that still step: those of trainings that are over need no looking after."""
        return [one for ref in self._active if (one := ref()) is not None and one.is_active(self.steps)]

    def training_of(self, parameter: Any) -> Group | None:
        """The training whose optimizer holds a parameter; None if that cannot be told."""
        try:
            return self.trainings.of_parameter(parameter)
        except Exception as error:
            self.writer.stop(error)
            return None

    def tracked(self) -> list[Tracked]:
        """All optimizers that stepped and still live."""
        return list(self._optimizers.values())

    # The folder and the end

    @property
    def opened(self) -> bool:
        """Whether there was something to write a folder for."""
        return self.writer.opened

    @property
    def ended(self) -> bool:
        return self.writer.ended

    @property
    def folder(self) -> Path | None:
        """The folder of this process in the run directory, None before it trains."""
        return self.writer.folder

    def folder_or_fail(self) -> Path:
        assert self.writer.folder is not None
        return self.writer.folder

    @property
    def run_shown(self) -> str:
        """The run directory as the user would type it."""
        return os.path.relpath(self.run)

    def open(self) -> None:
        """Make the process's folder and start writing."""
        if not self.writer.opened and not self.off:
            self.writer.open()

    def flush(self) -> None:
        """Write all rows that are complete."""
        self.writer.flush()

    def start_sampling(self, threads: Threads) -> None:
        """The folder is there: start the threads that look at the process once a second."""
        sampling.start(self, self._moments["every_second"], self._fail, threads)

    @_never_raises
    def close(self) -> None:
        """The program has ended: write the rest."""
        if not self.opened or self.ended:
            return
        self._by_hand(lambda hand: hand.finish())
        self.writer.end()
        if self.off:
            return
        self.calls.settle(final=True)
        self._release(wait=True)
        self.write_costs()
        self.writer.close()

    @_never_raises
    def write_costs(self) -> None:
        """State what every signal has cost so far."""
        self.ledger.write(self)

    def _release(self, wait: bool = False) -> None:
        """Pass on, in order, the steps whose values have arrived from the device."""
        while self._pending:
            # Taken out first: a handler of a signal may train, and come here, between any two lines.
            row, readbacks = self._pending.popleft()
            if not wait and not all(readback.arrived() for readback in readbacks):
                self._pending.appendleft((row, readbacks))
                return
            for readback in readbacks:
                try:
                    readback.fill(row)
                except Exception as error:
                    self.writer.complain(error)
            self.emit("steps", row)

    # Who may call, and what went wrong

    def claim(self) -> bool:
        """This thread trains: whether this is (now) its recorder. A thread that has ended leaves its own behind."""
        me = threading.get_ident()
        if self._owner != me:
            if self._owner is not None and any(thread.ident == self._owner for thread in threading.enumerate()):
                return False
            self._owner = me
            self.thread_name = self.thread_name or threading.current_thread().name
        return True

    def _is_owner(self) -> bool:
        """Whether this thread is the one that trains; while nobody does, everybody may."""
        return self._owner is None or self._owner == threading.get_ident()

    def _switch_on(self, kind: type[Signal]) -> None:
        if kind.name in self.options.signals_off:
            self.ledger.off(kind.name, "switched off when the run was started")
            return
        if not kind.default_on and kind.name not in self.options.signals_on:
            self.ledger.off(kind.name, f"off unless asked for with --signal {kind.name}=on")
            return
        try:
            signal = kind(self)
        except Unavailable as reason:
            self.ledger.off(kind.name, str(reason))
            return
        except Exception as error:
            self.event("collector-error", kind.name, self.ledger.failed(kind.name, error))
            return
        self.ledger.on(kind.name)
        for moment in MOMENTS:
            method = getattr(signal, moment, None)
            if method is not None:
                alone = kind.sampled or moment == "every_second"  # not called by `fire`, which times the others
                self._moments[moment].append((signal, signal.meter.watched(method) if alone else method))

    def _fail(self, signal: Signal, error: Exception) -> None:
        """Switch a signal off for good and write down why, with the traceback."""
        if raised_by_a_signal_handler(error):
            raise error
        for moment, listeners in self._moments.items():
            self._moments[moment] = [listener for listener in listeners if listener[0] is not signal]
        self.event("collector-error", signal.name, self.ledger.failed(signal.name, error))

    def _cadence_changed(self, meter: Meter) -> None:
        self.event("cadence", meter.name, meter.why or "back to its usual cadence", value=float(meter.stride))
