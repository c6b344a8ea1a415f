"""Optimizers, schedulers and modules as they are made, and schedulers whenever they step: who holds what, made where.

The hooks of `torch.optim` see an optimizer when it steps first. One that waits for its turn, or never steps, holds
parameters all the same.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.internals import compiler
from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.program.lines import construction
from tracelyze.collectors.program.modules import vocabularies
from tracelyze.collectors.program.optimizers import constructed, made_with, rates
from tracelyze.collectors.recording.fast_path.path import this_thread
from tracelyze.collectors.system.program_signals import own_errors_dropped
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen


class _Depth(threading.local):
    schedulers = 0  # schedulers that are stepping on this thread: some step others


def install(torch: Any, recorder: Callable[[], Any], made: Callable[[], None]) -> None:
    """Wrap the constructor of optimizers and the step of schedulers. `made()` is called after an optimizer was made,
    "scheduled" is dispatched to `recorder()` after each step: with the scheduler, whether another scheduler stepped it,
    and what it was given first, which is the value that a ReduceLROnPlateau watches."""
    _constructor(sys.modules["torch.optim.optimizer"].Optimizer, made)
    _modules(torch)
    _embedding(torch)
    home, depth = torch.optim.lr_scheduler, _Depth()
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)
    for kind in vars(home).values():
        if not isinstance(kind, type) or not hasattr(kind, "get_last_lr"):
            continue
        if "__init__" in vars(kind):
            _placed(kind)
        if "step" in vars(kind):
            kind.step = _step(kind.step, recorder, depth, in_dynamo, compiling)  # type: ignore[attr-defined]


def _constructor(owner: Any, made_one: Callable[[], None]) -> None:
    original = owner.__init__

    @unseen_by_warnings
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        with contextlib.suppress(TypeError, AttributeError):  # a subclass that cannot be hashed, or has no groups yet
            constructed.add(self)
            construction.optimizers.note(self, sys._getframe(1))
            if len(self.param_groups) > 1 and (made := rates(self)) is not None:
                made_with[self] = made
        with own_errors_dropped:  # what other libraries hold may answer in any way
            made_one()

    owner.__init__ = __init__
    wrappers.append(__init__)


def _placed(owner: Any) -> None:
    """Have the constructor of a class of schedulers note where it is called."""
    original = owner.__init__

    @unseen_by_warnings
    @functools.wraps(original)
    def __init__(*args: Any, **kwargs: Any) -> None:
        try:
            if args:
                construction.optimizers.note(args[0], sys._getframe(1))
            original(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise

    owner.__init__ = __init__
    wrappers.append(__init__)


def _modules(torch: Any) -> None:
    """Note where modules are made, but not in a loop that has settled: those are loss functions and other helpers."""
    owner, in_dynamo = torch.nn.Module, torch.compiler.is_dynamo_compiling
    original = owner.__init__  # torch.compile traces this: it understands functions in a closure, and not much else

    @unseen_by_warnings
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if in_dynamo():
            original(self, *args, **kwargs)
            return
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        fast_path = this_thread.fast_path
        if fast_path is None or not fast_path.on:
            construction.modules.note(self, sys._getframe(1))

    owner.__init__ = __init__
    wrappers.append(__init__)


def _embedding(torch: Any) -> None:
    owner, is_compiling = torch.nn.Embedding, torch.compiler.is_compiling
    original = owner.__init__

    @unseen_by_warnings
    @functools.wraps(original)
    def __init__(*args: Any, **kwargs: Any) -> None:
        try:
            original(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if not is_compiling() and may_compute(torch):
            with own_errors_dropped, unseen(torch), torch.no_grad():
                vocabularies.made(args[0])

    owner.__init__ = __init__
    wrappers.append(__init__)


def _step(
    original: Callable[..., Any],
    recorder: Callable[[], Any],
    depth: _Depth,
    in_dynamo: Callable[[], bool],
    compiling: Any,
) -> Callable[..., Any]:
    @unseen_by_warnings
    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        depth.schedulers += 1
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        finally:
            depth.schedulers -= 1
        if not in_dynamo() and not compiling._is_compiling_flag:
            given = args[1] if len(args) > 1 else kwargs.get("metrics") if kwargs else None
            recorder().fire("scheduled", args[0], depth.schedulers > 0, given)
        return result

    wrappers.append(step)
    return step
