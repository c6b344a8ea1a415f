"""Calls of backward: counted, related to the calls that they ran through, and dispatched to the signals."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.manual_updates import WITHOUT_STEP
from tracelyze.collectors.recording.fast_path.path import FastPath
from tracelyze.collectors.recording.guards import on_training_thread
from tracelyze.collectors.recording.parts import Parts
from tracelyze.collectors.recording.steps import Steps


class Backwards:
    """What the hook on torch.autograd.backward calls."""

    def __init__(self, parts: Parts, fast_path: FastPath, steps: Steps) -> None:
        program = parts.program
        self.guard = parts.guard
        self._tensor = parts.torch.Tensor
        self._progress = parts.progress
        self._calls, self._trainings = program.calls, program.trainings
        self._optimizers, self._manual = program.optimizers, program.manual_updates
        self._open_backwards = program.backwards
        self._dispatcher = parts.dispatcher
        self._fast_path = fast_path
        self._steps = steps
        self._seen = parts.seen
        self._open = parts.open

    @on_training_thread
    def begins(self, given: Any, retains_graph: bool = False) -> None:
        """`torch.autograd.backward` was called by the program, perhaps with `retain_graph=True`."""
        if self._fast_path.active:
            self._fast_path.catch_up()
        if not self.guard.writer.opened:
            self._open()
        manual, progress, roots = self._manual, self._progress, self._tensors(given)
        manual.unchanged += 1
        if not manual.paused or manual.unchanged >= WITHOUT_STEP:
            manual.backward_begins(roots)
        progress.backwards += 1
        progress.retains_graph = retains_graph
        self.dispatch_begin(roots)
        progress.in_backward = True

    @on_training_thread
    def ends(self, given: Any) -> None:
        """`torch.autograd.backward` returned."""
        if self._fast_path.active:
            self._fast_path.catch_up()
        self._progress.in_backward = False
        self.dispatch_end(self._tensors(given))
        inside, self._optimizers.inside_now = self._optimizers.inside_now, None
        if inside is not None:
            self._steps.begins(inside)
            self._steps.ends(inside)
        if not self._manual.paused:
            self._manual.backward_ends()

    def _tensors(self, given: Any) -> tuple[Any, ...]:
        """The tensors that backward was called with; () if it is called with anything else, such as an iterator, which
        would be used up."""
        tensor = self._tensor
        if isinstance(given, tensor):
            return (given,)
        if type(given) in (list, tuple) and all(isinstance(one, tensor) for one in given):
            return tuple(given)
        return ()

    def dispatch_begin(self, roots: tuple[Any, ...], skipped_loss: Any = None) -> None:
        """Dispatch a backward that begins. Of one that was skipped (recording/fast_path) the loss alone is known: a
        number, or a scalar on a device."""
        self._seen.backward()
        self._calls.backward_begins()
        self._open_backwards.begins(skipped_loss)
        self._dispatcher.dispatch("before_backward", roots)

    def dispatch_end(self, roots: tuple[Any, ...]) -> None:
        """Dispatch the end of a backward."""
        calls = self._calls
        self._trainings.backward_ended(calls.reached)
        self._seen.backward_ends(calls.reached, self._trainings.reached_models)
        self._open_backwards.ends(calls.reached, calls.latest)
        self._dispatcher.dispatch("after_backward", roots)
