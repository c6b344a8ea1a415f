"""Outermost module calls and losses: counted, recorded, and dispatched to the signals."""

from __future__ import annotations

import traceback
from typing import Any

from tracelyze import redaction
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.models import tensors_of
from tracelyze.collectors.recording.fast_path.path import FastPath
from tracelyze.collectors.recording.guards import on_training_thread
from tracelyze.collectors.recording.parts import Parts
from tracelyze.collectors.signals.context import ModuleWatch
from tracelyze.collectors.storage import arrow
from tracelyze.collectors.system.program_signals import own_errors_dropped, raised_by_a_signal_handler
from tracelyze.collectors.tensors.safe_computing import unseen


class Forwards:
    """What the hooks on modules and loss functions call."""

    def __init__(self, parts: Parts, fast_path: FastPath) -> None:
        self.guard = parts.guard
        self._torch = parts.torch
        self._progress = parts.progress
        self._calls = parts.program.calls
        self._dispatcher = parts.dispatcher
        self._fast_path = fast_path
        self._losses = parts.losses
        self._next_call = parts.next_call
        self._seen = parts.seen
        self._record_event = parts.record_event
        self._prepared = False
        self._calls_failed = False

    def watch_for(self, module: Any, args: Any, kwargs: Any) -> ModuleWatch | None:
        """The watch that a signal has asked for, of the modules within this one; None if there is none.

        The module is about to be called as an outermost one, with these arguments; args[0] is the module itself.
        """
        if not self._prepared:
            self._prepare()
        if self._next_call.given is not None:
            self._next_call.given(module, args[1:], kwargs)
        watch = self._next_call.watch or self._next_call.of_new_model
        if watch is None:
            return None
        try:
            with unseen(self._torch):
                return watch.begins(module)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.guard.writer.stop(error)
            return None

    def _prepare(self) -> None:
        """A model is about to be called for the first time: import what writing takes, before there are activations.

        What an import allocates stays. Among the activations of a first step it would keep the training from reusing
        its own memory: twice the page faults at every later step, 8% of a CNN's step time, measured.
        """
        self._prepared = True
        if self._torch.utils.data.get_worker_info() is not None:
            self.guard.writer.off = True  # A loader's worker: what it calls is part of its batches.
            return
        with own_errors_dropped:  # Tried again, and reported, when there is something to write.
            arrow.load()

    @on_training_thread
    def returned(
        self,
        module: Any,
        args: Any,
        kwargs: Any,
        output: Any,
        start: float,
        dropouts: int,
        statistics: int,
        losses: int,
    ) -> None:
        """An outermost module call, begun at `start`, has returned.

        `dropouts`, `losses`: how many of these functions were called inside it. `statistics`: how many batch
        normalisations in it changed their running statistics.
        """
        if self._fast_path.active:
            self._fast_path.catch_up()
        self._progress.forwards += 1
        if self._calls_failed:
            return
        try:
            call = self._calls.record(module, args, kwargs, output, start - self.guard.clock.zero, dropouts)
        except Exception as error:  # A module that cannot be hashed, say: steps are recorded without the calls.
            if raised_by_a_signal_handler(error):
                raise
            self._calls_failed = True
            text = redaction.redact_text("".join(traceback.format_exception(error)))
            self._record_event("collector-error", "calls", text)
            return
        if call is None:
            return
        if statistics:
            call.statistics = statistics
        self.dispatch(call, args, kwargs)
        if call.mode != GRAD or not call.in_train:
            self._losses.all()
        elif self._losses.next <= self._losses.count:
            self._losses.choose_next()
        if losses:  # A model that computes its own loss returns it.
            for value in tensors_of(self._torch, output):
                self.loss_returned(value)
        elif isinstance(output, dict):  # as models of transformers do, where a trainer has written its own function
            self.loss_returned(dict.get(output, "loss"))

    def dispatch(self, call: Call, args: Any, kwargs: Any) -> None:
        """Dispatch an outermost module call that returned."""
        self._seen.call(call)
        self._dispatcher.dispatch("forward", call, args, kwargs)
        if not call.assumed or self._calls.unsettled or not self._dispatcher.nobody_listens("settled"):
            self._calls.await_outcome(call)

    @on_training_thread
    def loss_returned(self, value: Any) -> None:
        """A loss function returned to the script. Its value is used in evaluation passes: training losses are read at
        their backward."""
        if isinstance(value, self._torch.Tensor) and value.dim() == 0:
            self._dispatcher.dispatch("loss", value)

    @on_training_thread
    def loss_called(self, function: str, args: Any, kwargs: Any, value: Any, by_script: bool) -> None:
        """A loss function of torch.nn.functional was called with these arguments, by the script or within a module.
        Within a module that is a loss, the output of that module is the loss: see `taken_as_loss`."""
        self._dispatcher.dispatch("loss_call", function, args, kwargs, value)
        if by_script and isinstance(value, self._torch.Tensor) and value.dim() == 0:
            self._dispatcher.dispatch("loss", value)

    def taken_as_loss(self, loss_kind: Any, module: Any, output: Any) -> bool:
        """Whether an outermost module is a loss function, whose value is then dispatched if it is its turn.

        It is one if it is a torch loss (of the class `loss_kind`), or one without parameters that returns a scalar.
        """
        if not isinstance(module, loss_kind):
            with self.guard.unseen():
                is_scalar = isinstance(output, self._torch.Tensor) and output.dim() == 0
            if not is_scalar:
                return False
            if any(part._parameters for part in module.modules()):
                return False
        if self._losses.count >= self._losses.next:
            self.loss_returned(output)
        return True
