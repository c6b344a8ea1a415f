"""Functional losses (their values in evaluation passes) and dropouts (whether they really drop)."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.hooks.process_recorders import recorder
from tracelyze.collectors.hooks.training import modes
from tracelyze.collectors.internals import compiler
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.recording.calling import local

LOSSES = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "kl_div", "gaussian_nll_loss", "poisson_nll_loss", "ctc_loss",
    "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "soft_margin_loss",
    "multi_margin_loss", "multilabel_soft_margin_loss",
)  # fmt: skip
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
NAMES = (*LOSSES, *DROPOUTS)


def install(torch: Any) -> None:
    """Wrap those that this torch has, and what sets the mode of modules."""
    functional = torch.nn.functional
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)
    for name in LOSSES:
        original = getattr(functional, name, None)
        if isinstance(original, types.FunctionType):
            setattr(functional, name, _like(original, _loss_wrapper(original, in_dynamo, compiling)))
    for name in DROPOUTS:
        original = getattr(functional, name, None)
        if isinstance(original, types.FunctionType):
            setattr(functional, name, _like(original, _dropout_wrapper(original, in_dynamo, compiling)))
    modes.install(torch, recorder, _like, compiling)


def _loss_wrapper(original: Callable[..., Any], in_dynamo: Callable[[], bool], compiling: Any) -> Callable[..., Any]:
    # All in the closure, for its globals are those of torch's function: see _like.
    calling, find_recorder, name, hide = local, recorder, original.__name__, leave_no_frame

    def loss(*args: Any, **kwargs: Any) -> Any:
        if in_dynamo() or compiling._is_compiling_flag:
            return original(*args, **kwargs)
        try:
            value = original(*args, **kwargs)
            recording = find_recorder()
            losses = recording.losses
            losses.count += 1
            if losses.count >= losses.next:
                recording.forwards.loss_called(name, args, kwargs, value, calling.root is None)
            return value
        except BaseException as error:
            hide(error)
            raise

    return loss


def _dropout_wrapper(original: Callable[..., Any], in_dynamo: Callable[[], bool], compiling: Any) -> Callable[..., Any]:
    find_recorder, hide = recorder, leave_no_frame  # in the closure: see _like

    def dropout(input, p=0.5, training=True, inplace=False):  # type: ignore[no-untyped-def]
        if training is True and p and not in_dynamo() and not compiling._is_compiling_flag:
            find_recorder().progress.dropouts += 1
        try:
            return original(input, p, training, inplace)
        except BaseException as error:
            hide(error)
            raise

    return dropout


def _like(original: Any, wrapper: Any) -> Any:
    """`wrapper` under the name, source and globals of `original`, which TorchScript compiles in its place."""
    takes_the_same = wrapper.__code__.co_argcount == original.__code__.co_argcount
    same_globals = types.FunctionType(
        unseen_by_warnings(wrapper).__code__,
        original.__globals__,
        original.__name__,
        original.__defaults__ if takes_the_same else wrapper.__defaults__,  # they differ between dropouts
        wrapper.__closure__,
    )
    same_globals.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
    return functools.wraps(original)(same_globals)
