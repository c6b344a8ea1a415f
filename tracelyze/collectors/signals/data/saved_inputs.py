"""Which tensors a graph has saved for its backward, told by the memory in which they lie."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from tracelyze.collectors.tensors import saved_values

MAX_NODES = 5000  # of a graph: some 10 ms, and only where an input was seen to change
RAW = "_raw_saved_"


def memory(tensor: Any) -> int:
    """The address of the memory that a tensor shares with its views; 0 for one without."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (AttributeError, RuntimeError, NotImplementedError):
        return 0


def saved(roots: Iterable[Any], addresses: set[int]) -> set[int]:
    """Those of the addresses at which a tensor lies that the graph behind `roots` has saved."""
    found: set[int] = set()
    seen = {root.grad_fn: None for root in roots if root.grad_fn is not None}  # in order
    pending = list(seen)
    while pending and len(seen) < MAX_NODES and found != addresses:
        node = pending.pop()
        found.update(address for one in _saved_by(node) if (address := memory(one)) in addresses)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen[following] = None
                pending.append(following)
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
