"""When the collector may compute on the program's tensors: only where nobody but itself would notice."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Any

from tracelyze.collectors.internals import private_names


def may_compute(torch: Any, on_cuda: bool = False) -> bool:
    """Whether an operation of ours would go unseen: nothing traces, transforms, counts or captures operations now."""
    if torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return not (on_cuda and torch.cuda.is_current_stream_capturing())


def unseen(torch: Any) -> contextlib.AbstractContextManager[Any]:
    """Within it no `__torch_function__` of a tensor or a mode sees what is computed."""
    disabled = private_names.find(torch, private_names.NO_FUNCTION_MODES) or contextlib.nullcontext
    context: contextlib.AbstractContextManager[Any] = disabled()
    return context


def is_plain(torch: Any, tensor: Any) -> bool:
    """Whether a tensor is of torch's own kind, with its elements in memory: no subclass, sparse, meta or fake one."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and (tensor.is_cpu or tensor.is_cuda)
        and not tensor.is_quantized
    )


def has_memory(torch: Any, tensor: Any) -> bool:
    """Whether the elements of a tensor lie where its address says: of a plain one, and of a class of the program's that
    only adds to it. What stands for others (a fake tensor, a DTensor) has no memory: to read it where the program's
    modes are kept from seeing it (recording/guards.py) would end the process.
    """
    return (
        type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
    )


def as_reals(torch: Any, tensor: Any) -> Any:
    """A plain tensor, detached; a complex one as pairs of real numbers: torch warns where it is made real."""
    detached = tensor.detach()
    return torch.view_as_real(detached.resolve_conj()) if detached.is_complex() else detached


def norms_of(torch: Any, tensors: Sequence[Any], order: float = 2) -> Any:
    """Norm of each tensor, as one float32 tensor of shape [tensors]; all must be strided and on one device.

    16-bit tensors are summed in 32 bits, where their squares do not overflow. 64-bit ones are not made shorter first,
    nor complex ones real: torch refuses to.
    """
    wide = any(tensor.dtype is torch.float64 or tensor.is_complex() for tensor in tensors)
    found = torch._foreach_norm(tensors, order, dtype=None if wide else torch.float32)
    return torch.stack([norm.to(torch.float32) for norm in found] if wide else found)


def every_nth(tensor: Any, count: int) -> Any:
    """At most `count` elements spread over a plain tensor as one dimension, without a copy. Their order means nothing.

    The distance has no factor in common with the last dimension, so that not only one column is met.
    """
    elements = tensor.numel()
    step = _distance(elements, int(tensor.shape[-1]), count) if elements > count and tensor.dim() else 1
    detached = tensor.detach()
    if not elements or not (tensor.is_contiguous() or _dense(tensor)):
        return detached.reshape(-1)[::step]
    return detached.as_strided((-(-elements // step),), (step,), tensor.storage_offset())


@functools.lru_cache(256)
def _distance(elements: int, last: int, count: int) -> int:
    """The distance between `count` of so many elements, in a tensor whose last dimension is `last`."""
    step = -(-elements // count)
    while step < elements and math.gcd(step, last) > 1:
        step += 1
    return step


def _dense(tensor: Any) -> bool:
    """Whether its elements fill a stretch of memory, in whatever order (channels last, transposed)."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
