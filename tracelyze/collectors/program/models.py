"""Outermost modules that were called, and the tensors that they are given and return."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from tracelyze.collectors.program.modules import mode_sensitivity
from tracelyze.collectors.tensors.safe_computing import is_plain

WRAPPED = ("module", "_forward_module", "_orig_mod", "_original_module")  # what DDP, Fabric, torch.compile name it
MOST_WRAPPERS = 8
MAX_TENSORS = 4


class Model:
    """An outermost module that was called; known by its number, held weakly."""

    def __init__(self, torch: Any, number: int, module: Any) -> None:
        self.number = number
        self.module = weakref.ref(module)
        self.name = type(module).__name__
        self.sensitive = mode_sensitivity.sensitive_modules(torch, module)
        core = wrapped(module)
        self.skipped: dict[int, int] = {}  # steps that were done at the latest calls that were skipped, by samples
        self._core: weakref.ref[Any] | None = None if core is module else weakref.ref(core)
        # Tells as `in_train` does, for who asks at every step: without a wrapper no function of ours is called.
        self.trains: Callable[[Any], Any] = attrgetter("training") if core is module else self.in_train

    def in_train(self, module: Any) -> bool:
        """Whether the module, which is the model's, is in train mode. Of a wrapper what it wraps is asked: programs
        switch the mode of that one, which the wrapper does not see."""
        core = self._core() if self._core is not None else None
        return bool((module if core is None else core).training)


def wrapped(module: Any) -> Any:
    """The module within wrappers that have no parameters of their own; itself if it is none."""
    for _ in range(MOST_WRAPPERS):
        children = dict(module._modules.items())  # that of a scripted module is no dictionary
        inner = next((children[name] for name in WRAPPED if children.get(name) is not None), None)
        names = {name for name, child in children.items() if child is not None}
        if inner is None or not names <= set(WRAPPED) or module._parameters or module._buffers:
            break
        module = inner
    return module


def symbol(module: Any, name: str) -> int | None:
    """A special id that the configuration of a model of transformers names, also within DistributedDataParallel."""
    members = vars(module)
    within = dict(members.get("_modules", {}).items()).get("module")  # not of a dictionary where it is scripted
    config = members.get("config", getattr(within, "config", None))
    found = getattr(config, name, None)
    return found if type(found) is int else None


def tensors_of(torch: Any, output: Any) -> list[Any]:
    """The first few tensors in a module's output: a tensor, or a nest of sequences and mappings of tensors."""
    tensor, found = torch.Tensor, []
    pending = [output]
    for value in pending:  # which grows meanwhile
        if isinstance(value, tensor):
            found.append(value)
            if len(found) == MAX_TENSORS:
                break
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, (tuple, list)):
            pending += value[:MAX_TENSORS]
        elif hasattr(value, "__dataclass_fields__"):
            pending += vars(value).values()
    return found


def first_tensor(torch: Any, args: Any, kwargs: Any) -> Any:
    """The first tensor among a call's arguments; None if there is none."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (tuple, list)) and value and isinstance(value[0], torch.Tensor) and value[0].dim():
            return value[0]
        if isinstance(value, dict):
            for inner in value.values():
                if isinstance(inner, torch.Tensor) and inner.dim():
                    return inner
    return None


def samples_in_sequence(torch: Any, args: Any, kwargs: Any, one_each: bool) -> int | None:
    """How many samples a call is given whose first tensor is one of a sequence; None where that tensor tells.

    A PackedSequence begins with the positions of all samples. `one_each`: the sequence has a tensor for each sample.
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.nn.utils.rnn.PackedSequence):
            sizes = value.batch_sizes
            known = is_plain(torch, sizes) and sizes.is_cpu and sizes.dtype is torch.int64 and sizes.numel()
            # Read from memory: an operation would show in the program's profiler.
            return ctypes.c_int64.from_address(sizes.data_ptr()).value if known else None
        if isinstance(value, (tuple, list)) and value and isinstance(value[0], torch.Tensor) and value[0].dim():
            return len(value) if one_each else None
        if isinstance(value, (torch.Tensor, dict)):
            return None
    return None


def carries_graph(torch: Any, value: Any) -> bool:
    """Whether an argument was made by operations that autograd has recorded."""
    if type(value) is tuple and value:
        value = value[0]
    return isinstance(value, torch.Tensor) and value.grad_fn is not None
