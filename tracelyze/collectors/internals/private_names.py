"""What the collector uses of torch that torch does not promise, and what becomes of it in a torch that lacks it.

A signal names what it cannot do without in `needs`, by its path from `torch` on, and is off where that is missing. The
hooks do without: `SUBSTITUTES` says how.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

TRACING = "_C._get_tracing_state"
GRAPH_TASK = "_C._current_graph_task_id"
COMPILING = "compiler._is_compiling_flag"
FRAMES = "_C._dynamo.eval_frame"
LOSS_MODULE = "nn.modules.loss._Loss"
BATCH_NORM = "nn.modules.batchnorm._NormBase"
LOADER_ITERATOR = "utils.data.dataloader._BaseDataLoaderIter"
MAP_FETCHER = "utils.data._utils.fetch._MapDatasetFetcher"
STREAM_FETCHER = "utils.data._utils.fetch._IterableDatasetFetcher"
FUNCTION_MODES = "_C._len_torch_function_stack"
MODE_AT = "_C._get_function_stack_at"
NO_FUNCTION_MODES = "_C.DisableTorchFunction"
NO_DISPATCH_MODES = "_C._DisableTorchDispatch"
DISPATCH_MODES = "_C._len_torch_dispatch_stack"
TRANSFORMS = "_C._functorch.peek_interpreter_stack"
GRAD_AND_VALUE = "_functorch.eager_transforms.grad_and_value_impl"
ANY_AUTOCAST = "_C._is_any_autocast_enabled"
PROFILING = "autograd._profiler_enabled"
SAVED = "_C._autograd.SavedTensor"
NORMS = "_foreach_norm"
COLLECTIVES = "_C._distributed_c10d._dump_fr_trace_json"
COLLECTIVES_BEFORE = "_C._distributed_c10d._dump_nccl_trace_json"  # its name up to torch 2.8

UNSEEN = (TRACING, DISPATCH_MODES, TRANSFORMS)  # without these nobody knows whether computing would be noticed

SUBSTITUTES = {
    TRACING: "calls of a model that torch.jit traces count as calls of the training",
    GRAPH_TASK: "a backward within a backward is recognised by the recorder that is in one, whichever thread calls it",
    MODE_AT: "with a default device no step is skipped, and dropout within fused attention is not seen",
    NO_FUNCTION_MODES: "what is computed for the recording is visible to the program's modes for torch functions",
    NO_DISPATCH_MODES: "losses that are read for the recording are visible to the program's modes for operations",
    COMPILING: "torch.compiler.is_compiling is called instead, which takes 0.1 us more a hook",
    FRAMES: "torch.compiler.disable keeps torch.compile from our functions: a second more at the start, one more break",
    BATCH_NORM: "BatchNorm is recognised by its mode alone, and its running statistics are not followed",
    GRAD_AND_VALUE: "losses of torch.func.grad are not seen",
    LOSS_MODULE: "loss modules are recognised by their scalar output alone",
}


def find(torch: Any, name: str) -> Any:
    """What lies at the path `name` from `torch` on; None if this torch lacks it."""
    found = torch
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def lacking(torch: Any, names: Iterable[str]) -> list[str]:
    """Those of `names` that this torch lacks."""
    return [name for name in names if find(torch, name) is None]


def lacks(torch: Any, names: Iterable[str]) -> str:
    """A clause that says which of `names` this torch lacks; empty if it has them all."""
    missing = lacking(torch, names)
    return f"torch {torch.__version__} lacks torch.{' and torch.'.join(missing)}" if missing else ""
