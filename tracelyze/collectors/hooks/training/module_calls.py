"""Outermost calls of modules. A patched `__call__` costs a quarter of a global forward hook and warns nobody."""

from __future__ import annotations

import functools
from time import perf_counter
from typing import Any

from tracelyze.collectors.hooks.process_recorders import recorder
from tracelyze.collectors.internals import compiler, private_names
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.recording.calling import local
from tracelyze.collectors.recording.fast_path.path import this_thread


def install(torch: Any) -> None:
    """Wrap the call of a module, on the class.

    A call takes one of four ways: a module within another one is only called, or shown to who watches these (`watch`);
    an outermost one is checked by the fast path, where that expects it, or else recorded in full.
    """
    owner = torch.nn.Module
    original = owner.__call__
    clock, calling, skipping = perf_counter, local, this_thread
    tracing = private_names.find(torch, private_names.TRACING) or (lambda: None)
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)
    loss_kind = private_names.find(torch, private_names.LOSS_MODULE) or ()

    @functools.wraps(original)
    def __call__(*args: Any, **kwargs: Any) -> Any:  # `self` is args[0]: a parameter of its own costs at every call
        if in_dynamo():
            return original(*args, **kwargs)
        try:
            watch = calling.watch
            if watch is False or compiling._is_compiling_flag:
                return original(*args, **kwargs)
            if watch is not None:
                output = original(*args, **kwargs)
                watch.returned(args[0], output, args, kwargs)
                return output
            if tracing() is not None or not args:  # without a module it is the program's error
                return original(*args, **kwargs)
            fast_path, self = skipping.fast_path, args[0]
            if fast_path is not None and fast_path.on and (fast_path.model() is self or fast_path.may_be_aside(self)):
                counts, progress, call = fast_path.losses, fast_path.progress, original
                dropouts = progress.dropouts
            else:
                fast_path, recording = None, recorder()
                if recording.writer.off:
                    return original(*args, **kwargs)
                watch = recording.forwards.watch_for(self, args, kwargs)
                counts, progress = recording.losses, recording.progress
                dropouts = progress.dropouts
                call = recording.program.fused_dropouts.watched(original, self)
            losses, statistics = counts.count, progress.statistics
            start = clock()
            try:  # Nothing is called between this line and the next: an OS signal handler may raise in any call.
                calling.root, calling.watch = self, watch or False
                output = call(*args, **kwargs)
            finally:
                calling.root = calling.watch = None
            if watch:
                watch.ends(self, output)
            if fast_path is not None and fast_path.forward(args, kwargs, output):
                return output
            forwards = recorder().forwards
            if not forwards.taken_as_loss(loss_kind, self, output):
                within = (progress.dropouts - dropouts, progress.statistics - statistics, counts.count - losses)
                forwards.returned(self, args[1:], kwargs, output, start, *within)
            return output
        except BaseException as error:
            leave_no_frame(error)
            raise

    _stand_for(owner, original, unseen_by_warnings(__call__))


def _stand_for(owner: Any, original: Any, wrapper: Any) -> None:
    """Under each name of the class: torch's `__call__` has another one, by which pickle looks for it."""
    for name in [name for name, value in vars(owner).items() if value is original]:
        setattr(owner, name, wrapper)
