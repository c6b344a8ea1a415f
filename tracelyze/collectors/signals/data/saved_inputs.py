"""Which tensors a graph has saved for its backward, told by the memory in which they lie."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values

MAX_NODES = 5000  # of a graph: some 10 ms, and only where an input was seen to change
RAW = "_raw_saved_"
Extent = tuple[int, int]
NOWHERE: Extent = (0, 0)


def extent(tensor: Any) -> Extent:
    """From where to where in memory the elements of a tensor lie; NOWHERE for one without."""
    try:
        begin, size = int(tensor.data_ptr()), int(tensor.element_size())
        last = sum([(count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True)])
    except (AttributeError, RuntimeError, NotImplementedError):
        return NOWHERE
    return (begin, begin + (last + 1) * size) if begin and tensor.numel() else NOWHERE


def saved(roots: Iterable[Any], extents: set[Extent]) -> set[Extent]:
    """Which of these extents hold a tensor, or a part of one, that the graph behind `roots` has saved."""
    found: set[Extent] = set()
    seen = {root.grad_fn: None for root in roots if root.grad_fn is not None}  # in order
    pending = list(seen)
    while pending and len(seen) < MAX_NODES and found != extents:
        node = pending.pop()
        for begin, end in [extent(one) for one in _saved_by(node)]:
            found.update([(first, last) for first, last in extents if begin < last and first < end])
        for one in graphs.following(node):
            if one not in seen:
                seen[one] = None
                pending.append(one)
    return found


def _saved_by(node: Any) -> list[Any]:
    tensors: list[Any] = []
    kind: Any = type(node)
    for name in _names(kind):
        several = isinstance(getattr(node, RAW + name, None), (tuple, list))
        tensors += saved_values.saved_several(node, name) if several else [saved_values.saved(node, name)]
    return [one for one in tensors if one is not None]


@functools.lru_cache(1024)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(name.removeprefix(RAW) for name in dir(kind) if name.startswith(RAW))
