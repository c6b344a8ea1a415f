"""Losses of trainings that ask for their gradients by `torch.autograd.grad` or `torch.func`, and never call backward.

Such a program updates its weights in its own way, and often no optimizer steps: what is recorded is the loss, as if the
script had logged it. Gradients of anything but weights are no training: penalties, attacks, derivatives of a solution.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from tracelyze.collectors.internals import compiler, private_names
from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.program.call_sites import script_frames
from tracelyze.collectors.recording.calling import local
from tracelyze.collectors.recording.guards import Guard, never_raises
from tracelyze.collectors.recording.recorder import Recorder
from tracelyze.collectors.tensors import graphs
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute
from tracelyze.collectors.tensors.written_out import of_gradients

KEPT_AND_USED = "kept-graph"  # an event
MOST = 10_000  # tensors of which the gradients were asked for
LOOKS, LOOKS_EVERY = 100, 16  # graphs that may go through a kept one: a loop asks for the same in each step
PATIENCE = 8  # steps in which what is made of gradients proves to be the loss, if it is
CREATE_GRAPH = 4  # its position among the arguments of torch.autograd.grad


class FunctionalLosses:
    """Tells losses of trainings from other scalars whose gradients are asked for, and records them."""

    def __init__(self, torch: Any, find_recorder: Callable[[], Recorder]) -> None:
        self._torch, self._find_recorder = torch, find_recorder
        self._logs_itself = False  # the script has losses of its own to log
        self._taken = 0
        self._went_again = False  # a graph that a backward may have kept for it was gone through
        self._looked = 0  # at what was asked for after a backward that kept its graph
        self._derived = False  # gradients of weights have had a graph: what is made of them may be asked for next
        self._alone = 0  # steps since such a number was a loss, as in MAML: the loss is what had the graph kept
        self._weights = (0, 0)  # a weight at the latest call that kept a graph, and its version

    @property
    def guard(self) -> Guard:
        """The guard of the recorder of this thread."""
        return self._find_recorder().guard

    @never_raises
    def asked(self, outputs: Any, inputs: Any, gradients: Any, create_graph: bool) -> None:
        """`torch.autograd.grad` returned."""
        recorder = self._find_recorder()
        if recorder.progress.retains_graph and not self._went_again and self._may_go_again(outputs):
            self._went_again = True
            recorder.record_event(KEPT_AND_USED, "torch.autograd.grad")
        parameter = self._torch.nn.Parameter
        inputs = list(inputs)[:MOST] if type(inputs) in (list, tuple) else [inputs]
        if not inputs or not all(isinstance(one, parameter) for one in inputs):
            return
        if type(outputs) in (list, tuple) and len(outputs) == 1:
            outputs = outputs[0]
        if create_graph:
            of_gradients.mark(self._torch, gradients)
            self._kept_a_graph(outputs, inputs[0])
        elif not self._derived:
            self._take("torch.autograd.grad", outputs)
        elif of_gradients.is_loss(getattr(outputs, "grad_fn", None)):
            self._alone = 0
            self._take("torch.autograd.grad", outputs)

    def _may_go_again(self, outputs: Any) -> bool:
        """Whether what is asked for may go through the graph that the latest backward kept, and is not all newer."""
        self._looked += 1
        if self._looked > LOOKS and self._looked % LOOKS_EVERY:
            return False
        tensors = outputs if type(outputs) in (list, tuple) else [outputs]
        if local.kept is None or not all(isinstance(one, self._torch.Tensor) for one in tensors):
            return True
        return graphs.reaches_back(tensors, local.kept, graphs.MAX_WALKED)

    def _kept_a_graph(self, outputs: Any, weight: Any) -> None:
        """A loss, or one of the inner losses of a step. It is the former if weights change from one to the next, and
        nothing that is made of its gradients proves to be the loss."""
        self._derived = True
        before, self._weights = self._weights, (id(weight), weight._version)
        if before[0] == id(weight) and before != self._weights:
            self._alone += 1
            if self._alone > PATIENCE:
                self._take("torch.autograd.grad", outputs)

    @never_raises
    def differentiated(self, gradients: Any, loss: Any) -> None:
        """`torch.func.grad`, or `grad_and_value`, returned to code that is within no other transform of torch.func."""
        several = gradients.values() if isinstance(gradients, dict) else gradients
        if type(gradients) not in (dict, list, tuple) or len(gradients) < 2:
            return
        if any(getattr(one, "dim", int)() > 1 for one in several):  # weights: a matrix is among them
            self._take("torch.func", loss)

    def _take(self, by: str, loss: Any) -> None:
        torch, recorder = self._torch, self._find_recorder()
        if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.is_floating_point():
            return
        progress = recorder.progress
        if not self._taken and _logs_itself():
            self._logs_itself = True
        if self._logs_itself or progress.backwards or progress.log_calls > self._taken:  # its losses are seen otherwise
            return
        if is_plain(torch, loss) and may_compute(torch, loss.is_cuda):
            recorder.logged((), {"loss": loss.detach()}, None, "train", None)
            if not self._taken:
                recorder.record_event("functional-gradients", by)
            self._taken = progress.log_calls


def _logs_itself() -> bool:
    """Whether the file of the program that asks has taken something from tracelyze: it may log its losses."""
    frame = next(script_frames(sys._getframe(1)), None)
    for value in list(frame.f_globals.values()) if frame is not None else ():
        kind = type(value)
        home = value.__name__ if kind is ModuleType else value.__module__ if kind is FunctionType else None
        if isinstance(home, str) and home.partition(".")[0] == "tracelyze":
            return True
    return False


def install(torch: Any, find_recorder: Callable[[], Recorder]) -> None:
    """Wrap both. What they are asked within a backward, or while torch traces, is none of the script's."""
    losses = FunctionalLosses(torch, find_recorder)
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)
    calling, within = local, private_names.find(torch, private_names.TRANSFORMS)

    def unwatched() -> bool:
        return bool(in_dynamo() or compiling._is_compiling_flag or calling.backwards_unseen or (within and within()))

    original = torch.autograd.grad

    @unseen_by_warnings
    @functools.wraps(original)
    def grad(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if not unwatched():
            outputs, inputs = (args[0] if args else kwargs.get("outputs")), kwargs.get("inputs")
            create_graph = kwargs.get("create_graph", args[CREATE_GRAPH] if len(args) > CREATE_GRAPH else False)
            losses.asked(outputs, args[1] if len(args) > 1 else inputs, result, bool(create_graph))
        return result

    torch.autograd.grad = grad
    wrappers.append(grad)
    home, _, name = private_names.GRAD_AND_VALUE.rpartition(".")
    transforms = private_names.find(torch, home)
    transform = getattr(transforms, name, None)
    if transform is None:
        return

    @unseen_by_warnings
    @functools.wraps(transform)
    def grad_and_value_impl(*args: Any, **kwargs: Any) -> Any:
        try:
            gradients, value = result = transform(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if not unwatched():
            losses.differentiated(gradients, value[0] if type(value) is tuple else value)
        return result

    setattr(transforms, name, grad_and_value_impl)
    wrappers.append(grad_and_value_impl)
