"""What autograd saved for a backward, read where that runs nothing of the program's.

Tensors that were saved while hooks for saved tensors were in force (activation checkpointing, offloading to the host)
are read through the program's own hook: a checkpointed forward would run once more.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any, Final

MAX_NODES: Final = 5000  # of a graph that are walked through

_used: list[bool] = []  # whether the program has used such hooks, once that is watched


def watch(torch: Any) -> None:
    """torch before 2.10 does not say whether a saved tensor has hooks: there, note if hooks are used at all."""
    if hasattr(torch._C._autograd.SavedTensor, "unpack_hook") or _used:
        return
    _used.append(False)
    owner = torch.autograd.graph.saved_tensors_hooks
    original = owner.__enter__

    @functools.wraps(original)
    def __enter__(self: Any) -> Any:
        _used[0] = True
        return original(self)

    owner.__enter__ = __enter__


def operation(node: Any) -> str:
    """The name of an autograd node. That of a function of the program's own may carry a `name` of the program's."""
    return str(type(node).name(node))


def kind(node: Any) -> str:
    """The operation whose node this is: "Mul" for MulBackward0. A slice that leaves nothing out is an "Alias": older
    versions of torch (2.6 still) make one of each colon before an index: two of `x[:, 1:]`, one of `x[:, None]`."""
    found = operation(node).partition("Backward")[0]
    return "Alias" if found == "Slice" and _takes_all(node) else found


def _takes_all(node: Any) -> bool:
    try:
        return tuple(node._input_metadata[0].shape) == tuple(node._saved_self_sym_sizes)
    except (AttributeError, IndexError, RuntimeError):  # another operation of that name, sizes that nobody knows
        return False


def graph_behind(root: Any, kinds: Collection[str]) -> tuple[list[Any], set[int]]:
    """The nodes of a graph, MAX_NODES or a few more, those nearest to the root first, and the ids of those that are
    reached through a node of these kinds."""
    order, known, behind = [root], {id(root)}, set[int]()
    for node in order:
        if len(order) >= MAX_NODES:
            break
        through = id(node) in behind or kind(node) in kinds
        for following, _ in node.next_functions:
            if following is None:
                continue
            if through:
                behind.add(id(following))
            if id(following) not in known:
                known.add(id(following))
                order.append(following)
    return order, behind


def signed(number: int) -> int:
    """A dimension as written: autograd hands negative ones out as unsigned numbers of 64 bits."""
    return number - 2**64 if number >= 2**63 else number


def saved_other(node: Any) -> Any:
    """The second factor or the divisor that was saved; None if it is gone, or if a hook of the program would run."""
    try:
        return None if _hooked(node._raw_saved_other) else node._saved_other
    except (AttributeError, RuntimeError):  # as in `saved`
        return None


def saved(node: Any, name: str) -> Any:
    """A tensor that the operation `node` saved under this name; None if it is gone, or if a hook would run."""
    try:
        return None if _hooked(getattr(node, f"_raw_saved_{name}")) else getattr(node, f"_saved_{name}")
    except (AttributeError, RuntimeError):  # another operation of that name, or a backward has released it
        return None


def saved_several(node: Any, name: str) -> tuple[Any, ...]:
    """The same, where an operation saved a list: that of its indices, or all "tensors" of a function that the program
    has written. Empty if one of them cannot be read."""
    try:
        hooked = any(_hooked(raw) for raw in getattr(node, f"_raw_saved_{name}"))
        own = "_saved_" if hasattr(node, f"_saved_{name}") else "saved_"
        return () if hooked else tuple(getattr(node, own + name))
    except (AttributeError, RuntimeError):
        return ()


def _hooked(raw: Any) -> bool:
    return raw.unpack_hook is not None if hasattr(raw, "unpack_hook") else _used != [False]
