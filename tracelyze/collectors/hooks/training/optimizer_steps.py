"""Steps of optimizers, by the hooks that torch has for those of all."""

from __future__ import annotations

import sys
from typing import Any

from tracelyze.collectors.hooks.process_recorders import held
from tracelyze.collectors.hooks.training.backward_passes import graph_task
from tracelyze.collectors.internals import compiler
from tracelyze.collectors.recording.calling import local
from tracelyze.collectors.recording.fast_path.path import this_thread


def install(torch: Any) -> None:
    """Be called before and after each step, unless torch compiles it."""
    calling, current_graph_task = local, graph_task(torch)
    in_dynamo, compiling = torch.compiler.is_dynamo_compiling, compiler.flag(torch)

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not in_dynamo() and not compiling._is_compiling_flag:
            fast_path = this_thread.fast_path
            if fast_path is not None and fast_path.on and fast_path.step_begins(optimizer):
                return
            recording = held[0].for_step(current_graph_task)
            if recording.progress.in_backward:
                recording.steps.inside_backward(optimizer)
            else:
                recording.steps.begins(optimizer)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not in_dynamo() and not compiling._is_compiling_flag:
            calling.optimizer_stepped = True
            fast_path = this_thread.fast_path
            if fast_path is not None and fast_path.on and fast_path.step_ends(optimizer):
                return
            held[0].for_step(current_graph_task).steps.ends(optimizer)

    home = sys.modules["torch.optim.optimizer"]  # `torch.optim` itself deletes this name
    compiler.hide_step_hook(torch, home, before)
    home.register_optimizer_step_pre_hook(before)
    home.register_optimizer_step_post_hook(after)
