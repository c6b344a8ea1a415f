"""What autograd saved for a backward, read where that runs nothing of the program's.

Tensors that were saved while hooks for saved tensors were in force (activation checkpointing, offloading to the host)
are read through the program's own hook: a checkpointed forward would run once more.
"""

from __future__ import annotations

import functools
from typing import Any, Final

TO_A_NUMBER: Final = ("MeanBackward0", "SumBackward0")
PRODUCTS: Final = {
    "AddmmBackward0": ("_saved_mat1_sym_sizes", "_saved_mat2_sym_sizes"),
    "MmBackward0": ("_saved_self_sym_sizes", "_saved_mat2_sym_sizes"),
}
OF_PARTS: Final = ("SelectBackward0", "SqueezeBackward1")
OF_TWO: Final = ("AddBackward0", "SubBackward0")
TERMS_DEEP: Final = 3  # sums of sums
ELEMENTWISE: Final = ("Pow", "Abs", "Log", "Log1P", "LogSigmoid", "Clamp", "ClampMin", "ClampMax", "Gelu", "Silu")

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
        size, end = node._saved_self_sym_sizes[signed(node._saved_dim)], node._saved_end
        return not node._saved_start and node._saved_step == 1 and (end is None or signed(end) >= size)
    except (AttributeError, IndexError, RuntimeError, TypeError):  # another operation of that name, unknown sizes
        return False


def sizes_of(node: Any, place: int = 0, deep: int = 0) -> tuple[int, ...] | None:
    """The sizes of what an operation put out, the first or a later output; None where they are not known.

    Nodes of torch before 2.5 do not tell (2.4 was looked at): there what was saved has to.
    """
    try:
        known = getattr(node, "_input_metadata", None)
        if known is None:
            return _told_by_saved(node, deep) if place == 0 and deep <= TERMS_DEEP else None
        return tuple(int(size) for size in known[place].shape)
    except (AttributeError, IndexError, TypeError, RuntimeError):  # one that has none, or that varies
        return None


def _told_by_saved(node: Any, deep: int) -> tuple[int, ...] | None:
    name = operation(node)
    if name in TO_A_NUMBER or (name.startswith("NllLoss") and node._saved_reduction):
        return ()
    if name in PRODUCTS:
        first, second = PRODUCTS[name]
        return int(getattr(node, first)[0]), int(getattr(node, second)[1])
    if name == "torch::autograd::AccumulateGrad":
        return tuple(node.variable.shape)
    if name in OF_TWO:  # of which one alone may be repeated along the other
        both = [None if one is None else sizes_of(one, place, deep + 1) for one, place in node.next_functions]
        return both[0] if both[0] == both[-1] else None
    if name in OF_PARTS or kind(node) == "Alias":
        sizes = [int(size) for size in node._saved_self_sym_sizes]
        if name == "SelectBackward0" or (name == "SqueezeBackward1" and sizes[signed(node._saved_dim)] == 1):
            del sizes[signed(node._saved_dim)]
        return tuple(sizes)
    trained = [one for one, _ in node.next_functions if one is not None]
    other = saved_other(node) if kind(node) in ("Mul", "Div") and len(trained) == 1 else None
    if kind(node) == "Neg" or (other is not None and not other.dim()):
        return sizes_of(trained[0], 0, deep + 1)
    made = saved(node, "result")
    made = saved(node, "self") if made is None and kind(node) in ELEMENTWISE else made
    return None if made is None else tuple(made.shape)


def signed(number: int) -> int:
    """A dimension as written: autograd hands negative ones out as unsigned numbers of 64 bits."""
    return number - 2**64 if number >= 2**63 else number


def is_last(dimension: int, rank: int) -> bool:
    """Whether a dimension that an operation has saved is the last one of so many."""
    return signed(dimension) in (rank - 1, -1)


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
    """The tensors of a list that an operation saved: that of its indices, or all "tensors" of a function that the
    program has written. Empty if one of them cannot be read."""
    try:
        hooked = any(_hooked(raw) for raw in getattr(node, f"_raw_saved_{name}"))
        own = "_saved_" if hasattr(node, f"_saved_{name}") else "saved_"
        return () if hooked else tuple(getattr(node, own + name))
    except (AttributeError, RuntimeError):
        return ()


def _hooked(raw: Any) -> bool:
    return raw.unpack_hook is not None if hasattr(raw, "unpack_hook") else _used != [False]
