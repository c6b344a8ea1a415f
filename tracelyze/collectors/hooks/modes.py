"""What modules do with their mode: batch normalisation that changes its statistics, and calls of `train`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.program.modules import mode_overrides


def install(torch: Any, recorder: Callable[[], Any], like: Callable[[Any, Any], Any], compiling: Any) -> None:
    """Wrap `Module.train` and `torch.nn.functional.batch_norm`. `like` makes a wrapper that TorchScript can compile."""
    owner, functional = torch.nn.Module, torch.nn.functional
    owner.train = _train(owner.train, torch.compiler.is_dynamo_compiling)
    original = functional.batch_norm
    functional.batch_norm = like(
        original, _batch_norm(original, torch.compiler.is_dynamo_compiling, compiling, recorder)
    )
    wrappers.extend((owner.train, functional.batch_norm))


def _train(original: Callable[..., Any], in_dynamo: Callable[[], bool]) -> Callable[..., Any]:
    called, evaluated = mode_overrides.called, mode_overrides.evaluated

    @unseen_by_warnings
    @functools.wraps(original)
    def train(self: Any, mode: bool = True) -> Any:  # called for every module of a model: no tuple, no dictionary
        if type(self).train is not train and not in_dynamo():
            # eval() calls it as well; what sets each module back to its mode after that does not.
            (evaluated if mode is False else called).add(self)
        try:
            return original(self, mode)
        except BaseException as error:
            leave_no_frame(error)
            raise

    return train


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
