"""What modules do with their mode: batch normalisation that changes its statistics, calls of `train`, and the one that
ends `from_pretrained`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.local_variables import borrowed
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.program.call_sites import is_library
from tracelyze.collectors.program.modules import mode_overrides


def install(torch: Any, recorder: Callable[[], Any], like: Callable[[Any, Any], Any], compiling: Any) -> None:
    """Wrap `Module.train` and `torch.nn.functional.batch_norm`. `like` makes a wrapper that TorchScript can compile."""
    owner, functional = torch.nn.Module, torch.nn.functional
    owner.train = _train(owner.train, torch.compiler.is_dynamo_compiling, recorder)
    original = functional.batch_norm
    functional.batch_norm = like(
        original, _batch_norm(original, torch.compiler.is_dynamo_compiling, compiling, recorder)
    )
    wrappers.extend((owner.train, functional.batch_norm))


def _train(
    original: Callable[..., Any], in_dynamo: Callable[[], bool], recorder: Callable[[], Any]
) -> Callable[..., Any]:
    called, evaluated, inner = mode_overrides.called, mode_overrides.evaluated, original.__code__

    @unseen_by_warnings
    @functools.wraps(original)
    def train(self: Any, mode: bool = True) -> Any:  # called for every module of a model: no tuple, no dictionary
        if type(self).train is not train and not in_dynamo():
            # eval() calls it as well; what sets each module back to its mode after that does not.
            (evaluated if mode is False else called).add(self)
        try:
            result = original(self, mode)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if mode is False and not in_dynamo() and (caller := sys._getframe(1)).f_code is not inner:
            _evaluated(self, caller, inner, recorder)
        return result

    return train


def _evaluated(module: Any, frame: FrameType | None, inner: CodeType, recorder: Callable[[], Any]) -> None:
    """`from_pretrained` of transformers and diffusers sets each weight by itself, past load_state_dict, in ways that
    change with their versions. All of them put the model to evaluate when its weights are there."""
    while frame is not None and frame.f_code.co_name in ("train", "eval"):
        if frame.f_code is inner:
            return  # along with the model that it is a part of
        frame = frame.f_back
    if frame is not None and frame.f_code.co_name == "from_pretrained" and is_library(frame.f_code.co_filename):
        with borrowed(frame) as own:
            names: Any = getattr(own.get("loading_info"), "missing_keys", own.get("missing_keys"))
        missing = {one for one in names if type(one) is str} if type(names) in (list, set) else set()
        mode_overrides.pretrained.add(module)
        recorder().fire("pretrained", module, missing)
    elif len(mode_overrides.pretrained):
        mode_overrides.pretrained.discard(module)


def _batch_norm(
    original: Callable[..., Any], in_dynamo: Callable[[], bool], compiling: Any, recorder: Callable[[], Any]
) -> Callable[..., Any]:
    find_recorder, hide = recorder, leave_no_frame

    def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):  # type: ignore[no-untyped-def]
        if training is True and running_mean is not None and not in_dynamo() and not compiling._is_compiling_flag:
            find_recorder().progress.statistics += 1
        try:
            return original(input, running_mean, running_var, weight, bias, training, momentum, eps)
        except BaseException as error:
            hide(error)
            raise

    return batch_norm
