"""What programs do to gradients between backward and step: clipping them, scaling the loss that they come of."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from tracelyze.collectors.internals import compiler
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings

L2 = (2, 2.0, "2")
NOTHING = object()


def install(torch: Any, recorder: Callable[[], Any], calling: Any) -> None:
    """Wrap the functions. An optimizer's step sets `calling.optimizer_stepped`."""
    _clipping(torch, recorder, calling)
    _loss_scaling(torch, recorder, calling)


def _clipping(torch: Any, recorder: Callable[[], Any], calling: Any) -> None:
    """Both homes of each function: `from torch.nn.utils import clip_grad_norm_` copies the name.

    `clip_grads_with_norm_` (torch 2.6) bears another name in the other home, where `clip_grad_norm_` calls it.
    """
    utils = torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"):
        original = getattr(utils, name, None)
        if original is not None:
            wrapper = _clip_wrapper(torch, original, recorder, calling, returns_norm=name == "clip_grad_norm_")
            for home in (utils.clip_grad, utils):
                for known in {name, original.__name__}:
                    if getattr(home, known, None) is original:
                        setattr(home, known, wrapper)


def _clip_wrapper(
    torch: Any, original: Callable[..., Any], recorder: Callable[[], Any], calling: Any, returns_norm: bool
) -> Callable[..., Any]:
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)

    @unseen_by_warnings
    @functools.wraps(original)
    def clip(*args: Any, **kwargs: Any) -> Any:
        if in_dynamo() or compiling._is_compiling_flag or calling.clipping or not (args or "parameters" in kwargs):
            return original(*args, **kwargs)
        try:
            parameters, args = (args[0], args[1:]) if args else (kwargs.pop("parameters"), ())
            recording = recorder()
            trainings = recording.program.trainings
            parameters, first = peeked(parameters)
            training = recording.training_of(first) if trainings.several and not recording.off else None
            clipped = trainings.clipped
            clipped.training, clipped.first = training, id(first)
            if clipped.looks and first is not None:
                parameters = kept(torch, parameters)
                clipped.note(parameters)
            # What else a clip returns, such as the largest element, is not the norm that is recorded.
            norm_known = returns_norm and (args[1] if len(args) > 1 else kwargs.get("norm_type", 2.0)) in L2
            if not norm_known and not recording.off and first is not None:
                parameters = kept(torch, parameters)
                if isinstance(parameters, (torch.Tensor, list, tuple)):
                    recording.fire("clips_values", parameters)
            try:
                calling.clipping = True
                total_norm = original(parameters, *args, **kwargs)
            finally:
                calling.clipping = False
            limit = args[0] if args else kwargs.get("max_norm", kwargs.get("clip_value"))
            recording.fire("clip", limit, total_norm if norm_known else None)
            return total_norm
        except BaseException as error:
            leave_no_frame(error)
            raise

    return clip


def peeked(values: Any) -> tuple[Any, Any]:
    """`values` as they were, and the first of them: what can be read only once (a generator, a `filter`) is handed on
    as one of the same values. An empty generator is handed on as it is: torch warns of those."""
    if isinstance(values, (list, tuple)):
        return values, values[0] if values else None
    if not isinstance(values, Iterator):
        return values, values
    first = next(values, NOTHING)
    if first is NOTHING:
        return values, None
    return itertools.chain((first,), values), first


def kept(torch: Any, values: Any) -> Any:
    """`values` as something that can be read twice: an iterator, or an object of the program's own, as a list."""
    if isinstance(values, (torch.Tensor, list, tuple)) or not hasattr(type(values), "__iter__"):
        return values
    return list(values)


def _loss_scaling(torch: Any, recorder: Callable[[], Any], calling: Any) -> None:
    scaler = torch.amp.grad_scaler.GradScaler
    is_compiling = torch.compiler.is_compiling
    scale, unscale, step = scaler.scale, scaler.unscale_, scaler.step

    @unseen_by_warnings
    @functools.wraps(scale)
    def scale_(self: Any, outputs: Any) -> Any:
        try:
            scaled = scale(self, outputs)
            if self.is_enabled() and not is_compiling():
                recorder().fire("scale", outputs, scaled)
            return scaled
        except BaseException as error:
            leave_no_frame(error)
            raise

    @unseen_by_warnings
    @functools.wraps(unscale)
    def unscale_(self: Any, optimizer: Any) -> Any:
        try:
            result = unscale(self, optimizer)
            if self.is_enabled() and not is_compiling():
                recorder().fire("unscale", self, optimizer)
            return result
        except BaseException as error:
            leave_no_frame(error)
            raise

    @unseen_by_warnings
    @functools.wraps(step)
    def step_(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if not self.is_enabled() or is_compiling():
                return step(self, optimizer, *args, **kwargs)
            recorder().fire("scaler_step", self)
            calling.optimizer_stepped = False
            result = step(self, optimizer, *args, **kwargs)
            if not calling.optimizer_stepped:  # the optimizer was not called at all: gradients overflowed
                recorder().steps.ends(optimizer, True)
            return result
        except BaseException as error:
            leave_no_frame(error)
            raise

    scaler.scale, scaler.unscale_, scaler.step = scale_, unscale_, step_
