"""Backward passes: one place sees `Tensor.backward`, Lightning, Accelerate and DDP."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.hooks.process_recorders import held, recorder, recorders
from tracelyze.collectors.hooks.training import functional_gradients
from tracelyze.collectors.internals import compiler, private_names
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.recording.calling import local
from tracelyze.collectors.recording.fast_path.path import this_thread
from tracelyze.collectors.tensors import graphs


def graph_task(torch: Any) -> Callable[[], int]:
    """Asks for the number of the backward that this thread works for, -1 for none."""
    found = private_names.find(torch, private_names.GRAPH_TASK)
    return found or (lambda: 0 if any(one.progress.in_backward for one in recorders()) else -1)


def install(torch: Any) -> None:
    """Wrap `torch.autograd.backward`, of which reentrant checkpointing nests calls."""
    original, calling, current_graph_task = torch.autograd.backward, local, graph_task(torch)
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if in_dynamo() or compiling._is_compiling_flag or calling.backwards_unseen or current_graph_task() != -1:
            return original(*args, **kwargs)
        tensors = args[0] if args else kwargs.get("tensors")
        fast_path, progress, watch = this_thread.fast_path, None, calling.watch
        try:
            calling.backwards_unseen, calling.watch = True, False  # what is called within recomputes activations
            retains_graph = kwargs.get("retain_graph", args[2] if len(args) > 2 else None) is True
            if fast_path is not None and fast_path.on and fast_path.backward_begins(tensors, retains_graph):
                progress = fast_path.progress
            else:
                fast_path, recording = None, held[0].for_backward()
                progress = recording.progress
                recording.backwards.begins(tensors, retains_graph)
                calling.watch = recording.program.calls.recomputation()
            if retains_graph:
                calling.kept = graphs.latest_number(tensors)
            result = original(*args, **kwargs)
            if fast_path is None or not fast_path.backward_ends():
                recorder().backwards.ends(tensors)
            return result
        except BaseException as error:
            leave_no_frame(error)
            raise
        finally:
            calling.backwards_unseen, calling.watch = False, watch
            if progress is not None:
                progress.in_backward = False

    torch.autograd.backward = unseen_by_warnings(backward)
    functional_gradients.install(torch, recorder)
