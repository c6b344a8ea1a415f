"""What happens with all that the hooks see: signals turn moments of the training into rows, a thread writes them.

The recorder exists from `import torch` on but stays silent until the process really trains: the run directory gets a
folder for it at the first backward, or at an exception before that. Launchers and loader workers never get there.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from pathlib import Path
from threading import get_ident
from time import perf_counter
from typing import Any

from tracelyze import redaction
from tracelyze.collectors.cadence.budget import Budget, Meter
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.calls import GRAD, Call, Calls, tensors_of
from tracelyze.collectors.program.manual_updates import WITHOUT_STEP, HandUpdates
from tracelyze.collectors.program.optimizers import Optimizers, Tracked
from tracelyze.collectors.program.trainings import Group, Trainings
from tracelyze.collectors.recording import sampling
from tracelyze.collectors.recording.dispatch import Moments
from tracelyze.collectors.recording.fast_path import SteadyState
from tracelyze.collectors.recording.guards import never_raises, of_training
from tracelyze.collectors.recording.ledger import Ledger
from tracelyze.collectors.signals import SIGNALS
from tracelyze.collectors.signals.signal import Watch
from tracelyze.collectors.storage.step_rows import StepRows
from tracelyze.collectors.storage.writer import Writer
from tracelyze.collectors.system.threads import Threads
from tracelyze.collectors.tensors.readback import Later

FIRST_LOSSES = 200  # losses of a training that are all told of, as all of an evaluation are
MAX_CHANGES = 100  # of a signal's cadence that are written down
LOSS_EVERY = 53  # of the others; a prime, so that no loss of several in a step is always missed


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
        self.hears_losses_from = 0  # number of the next loss that is of interest, and
        self.loss_every = LOSS_EVERY  # how many lie between two
        self.backwards_at_step = 0  # when the latest step of an optimizer began
        self.loader_in_hand: int | None = None
        self.backward_site: int | None = None
        self.retains_graph = False  # the latest backward keeps its graph on request
        self.prepared = False
        self.run = run
        self._owner: int | None = None
        self._calls_failed = False
        self._overhead_reported = 0.0
        self.clock = perf_counter()  # the zero of the process's clock
        self.called_at = 0.0  # perf_counter when the hook was called that is being served
        self.writer = Writer(self)
        self.step_rows = StepRows(self)
        self.budget = Budget(options.budget / 100.0, dict(options.cadences), self._cadence_changed)
        self.optimizers = Optimizers(self)
        self.in_backward = False
        self.clipped: Group | None = None  # the training whose gradients are being clipped, where there are several
        self.reached: frozenset[int] = frozenset()  # numbers of the models that the last backward ran through
        self.group: Group | None = None  # the training to which the backward belongs that has just returned
        self.by_hand = HandUpdates(self)
        self.sites = Sites(lambda row: self.emit("sites", row))
        self.calls = Calls(self)
        self.trainings = Trainings(self)
        self.ledger = Ledger(SIGNALS)
        self.steady = SteadyState(self)
        self.moments = Moments(self)

    # Time and rows

    def now(self) -> float:
        """Seconds on the process's clock, whose zero process.json relates to wall time."""
        return perf_counter() - self.clock

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

    @of_training
    def fire(self, moment: str, *args: Any) -> None:
        """Tell every signal that wants this moment. An error switches that signal off, and nothing else."""
        self.moments.tell(moment, *args)

    def prepare(self) -> None:
        """A model is about to be called for the first time: import what writing takes, before there are activations.

        What an import allocates stays. Among the activations of a first step it would keep the training from reusing
        its own memory: twice the page faults at every later step, 8% of a CNN's step time, measured.
        """
        self.prepared = True
        if self.torch.utils.data.get_worker_info() is not None:
            self.off = True  # a loader's worker: what it calls is part of its batches
            return
        with contextlib.suppress(Exception):  # tried again, and reported, when there is something to write
            import pyarrow.ipc  # noqa: F401

    def watch_for(self, module: Any) -> Watch | None:
        """Who looks at the modules within this one, which is about to be called as an outermost one."""
        if not self.prepared:
            self.prepare()
        return None if self.watch is None else self.watch.begins(module)

    @of_training
    def forward(
        self, module: Any, args: Any, kwargs: Any, output: Any, start: float, dropouts: int, losses: int
    ) -> None:
        """An outermost module call, begun at `start`, has returned; so many dropouts and losses were called in it."""
        if self.steady.stage:
            self.steady.catch_up()
        self.forwards += 1
        if self._calls_failed:
            return
        try:
            call = self.calls.record(module, args, kwargs, output, start - self.clock, dropouts)
        except Exception as error:  # a module that cannot be hashed, say: steps are recorded without the calls
            self._calls_failed = True
            self.event("collector-error", "calls", redaction.redact_text("".join(traceback.format_exception(error))))
            return
        if call is None:
            return
        self.tell_call(call, args, kwargs)
        if call.mode != GRAD or not call.in_train:
            self.hears_losses_from = 0
        elif self.hears_losses_from <= self.losses:
            self.choose_next_loss()
        if losses:  # a model that computes its own loss returns it
            for value in tensors_of(self.torch, output):
                self.loss_returned(value)

    def choose_next_loss(self) -> None:
        """The model was called to train, and the loss that was of interest is over: which is the next?"""
        every = self.loss_every
        self.hears_losses_from = 0 if self.losses < FIRST_LOSSES else (self.losses // every + 1) * every

    @of_training
    def loss_returned(self, value: Any) -> None:
        """A loss function returned to the script. Matters in evaluation passes; backward shows the others."""
        if isinstance(value, self.torch.Tensor) and value.dim() == 0:
            self.moments.tell("loss", value)

    @of_training
    def loss_called(self, function: str, args: Any, kwargs: Any, value: Any, by_script: bool) -> None:
        """A loss function of torch.nn.functional was called with these arguments, by the script or within a module,
        whose own output then tells what the loss is."""
        self.moments.tell("loss_call", function, args, kwargs, value)
        if by_script and isinstance(value, self.torch.Tensor) and value.dim() == 0:
            self.moments.tell("loss", value)

    @of_training
    def backward_begins(self, roots: Any, retains_graph: bool = False) -> None:
        """`torch.autograd.backward` was called by the program, perhaps with `retain_graph=True`."""
        if self.steady.stage:
            self.steady.catch_up()
        if not self.writer.opened:
            self.open()
        self.by_hand.unchanged += 1
        if not self.by_hand.resting or self.by_hand.unchanged >= WITHOUT_STEP:
            self.by_hand.backward_begins(roots)
        self.backwards += 1
        self.retains_graph = retains_graph
        self.tell_backward(roots)
        self.in_backward = True

    @of_training
    def backward_ends(self, roots: Any) -> None:
        """It returned."""
        if self.steady.stage:
            self.steady.catch_up()
        self.in_backward = False
        self.tell_backward_ended(roots)
        inside, self.optimizers.inside_now = self.optimizers.inside_now, None
        if inside is not None:
            self.step_begins(inside)
            self.step_ends(inside)
        if not self.by_hand.resting:
            self.by_hand.backward_ends()

    @never_raises
    def steps_inside(self, optimizer: Any) -> None:
        """An optimizer's step was called while backward runs, perhaps on a thread of the autograd engine."""
        self.optimizers.step_inside(optimizer)

    @of_training
    def step_begins(self, optimizer: Any) -> None:
        """An optimizer's step was called (for fused optimizers under GradScaler also when the kernel will skip)."""
        if self.steady.stage:
            self.steady.catch_up()
        if self._owner is None:
            self.claim()
        if not self.writer.opened:
            self.open()
        self.by_hand.in_step = True
        if not self.by_hand.resting:
            self.by_hand.optimizer_steps(optimizer)
        self.backwards_at_step = self.backwards
        tracked = self.optimizers.track(optimizer)
        if not self.moments.nobody_hears("before_step"):
            self.moments.tell("before_step", tracked)

    @of_training
    def step_ends(self, optimizer: Any, skipped: bool | None = None) -> None:
        """A step is over: gather its row from the signals. `skipped` is what GradScaler did, None without one."""
        if self.in_backward:
            return
        if self.steady.stage:
            self.steady.catch_up()
        tracked = self.optimizers.track(optimizer)
        self.steps = steps = self.steps + 1
        tracked.has_stepped(steps)
        by_hand, moments, time = self.by_hand, self.moments, self.called_at - self.clock
        if skipped:  # no step began
            by_hand.optimizer_steps(optimizer)
        by_hand.in_step, by_hand.unchanged = False, 0
        tracked.group = self.trainings.of(tracked)
        row: dict[str, Any] = {"optimizer": tracked.index, "step": tracked.count, "time": time}
        if skipped is not None:
            row["skipped"] = skipped
        if tracked.count == 1:
            moments.tell("first_step", tracked)
        moments.tell("after_step", tracked, row)
        self.alert = False
        moments.wake_if_time()
        if self.calls.unsettled:
            self.calls.settle()
        self.budget.step_ended(time, self.overhead, steps)
        row["overhead"] = self.overhead - self._overhead_reported  # what this call takes counts with the next step
        self._overhead_reported = self.overhead
        self.step_rows.put(row)
        self.steady.consider(tracked, row)

    def tell_call(self, call: Call, args: Any, kwargs: Any) -> None:
        """Tell of an outermost module call that returned."""
        self.moments.tell("forward", call, args, kwargs)
        if not call.assumed or self.calls.unsettled or not self.moments.nobody_hears("settled"):
            self.calls.await_outcome(call)

    def tell_backward(self, roots: Any) -> None:
        """Tell of a backward that begins; of one that was passed over (`SteadyState`), `roots` is its loss."""
        self.calls.backward_begins()
        self.moments.tell("before_backward", roots)

    def tell_backward_ended(self, roots: Any) -> None:
        """Tell that it returned."""
        calls = self.calls.reached
        self.reached = self.trainings.reached(calls)
        self.group = self.trainings.of_models(self.reached)
        if self.group is not None and calls:
            self.group.latest = calls[0]
        self.moments.tell("after_backward", roots)

    def charge(self, seconds: float) -> None:
        """Count time that rows which are written already state."""
        self.overhead += seconds
        self._overhead_reported += seconds

    @never_raises
    def logged(self, *said: Any) -> None:
        """The script called `tracelyze.log`, on whatever thread. That alone is reason to write a folder."""
        if not self.opened:
            if self.torch.utils.data.get_worker_info() is not None:
                return  # a loader's worker: its batches are the training process's to speak of
            self.open()
        self.log_calls += 1
        begin = perf_counter()
        self.moments.tell("logged", *said)
        self.overhead += perf_counter() - begin

    def raise_alert(self) -> None:
        """This step is out of the ordinary: everyone looks."""
        self.alert = True
        self.moments.wake()

    def later(self, part: Later) -> None:
        """Fill part of the current step's row when the device has delivered it."""
        self.step_rows.later(part)

    def active(self) -> list[Tracked]:
        """The optimizers that still step: those of trainings that are over need no looking after."""
        return self.optimizers.active()

    def training_of(self, parameter: Any) -> Group | None:
        """The training whose optimizer holds a parameter; None if that cannot be told."""
        try:
            return self.trainings.of_parameter(parameter)
        except Exception as error:
            self.writer.stop(error)
            return None

    def tracked(self) -> list[Tracked]:
        """All optimizers that stepped and still live."""
        return self.optimizers.tracked()

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

    def open(self) -> None:
        """Make the process's folder and start writing."""
        if not self.writer.opened and not self.off:
            self.writer.open()

    def flush(self) -> None:
        """Write all rows that are complete."""
        self.writer.flush()

    def start_sampling(self, threads: Threads) -> None:
        """The folder is there: start the threads that look at the process once a second."""
        sampling.start(self, self.moments.samplers(), self.moments.fail, threads)

    @never_raises
    def close(self) -> None:
        """The program has ended: write the rest."""
        if not self.opened or self.ended:
            return
        if self.steady.stage:
            self.steady.catch_up()
        self.by_hand.finish()
        self.writer.end()
        if self.off:
            return
        self.calls.settle(final=True)
        self.step_rows.release(wait=True)
        self.write_costs()
        self.writer.close()

    @never_raises
    def write_costs(self) -> None:
        """State what every signal has cost so far."""
        self.ledger.write(self)

    # Who may call, and what went wrong

    def claim(self) -> bool:
        """This thread trains: whether this is (now) its recorder. A thread that has ended leaves its own behind."""
        me = get_ident()
        if self._owner != me:
            if self._owner is not None and any(thread.ident == self._owner for thread in threading.enumerate()):
                return False
            self._owner = me
            self.thread_name = self.thread_name or threading.current_thread().name
        return True

    def _cadence_changed(self, meter: Meter) -> None:
        self.moments.rise(meter)
        if meter.changes <= MAX_CHANGES:
            self.event("cadence", meter.name, meter.why or "back to its usual cadence", value=float(meter.stride))
