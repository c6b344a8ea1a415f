"""Matrix products and convolutions behind a loss, and how much of their work was done in more than 16 bits.

Under autocast the products of layers run in 16 bits. One that a module of the script's own writes in place, or into a
tensor that it was given, is not among the functions that autocast knows, and runs in the types that it finds.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tracelyze.collectors.tensors.graphs import graph_behind
from tracelyze.collectors.tensors.saved_values import kind, saved

COLUMNS: Final = ("products_work", "products_wide")
_PRODUCTS: Final = {  # the factor whose sizes say over how many values each result sums: saved sizes, or saved itself
    "Addmm": ("mat1_sym_sizes", "mat1"), "Mm": ("self_sym_sizes", "self"), "Bmm": ("", "self"),
    "Baddbmm": ("", "batch1"), "Addbmm": ("", "batch1"), "Convolution": ("", "weight"),
}  # fmt: skip


def columns(torch: Any, root: Any, device: Any) -> dict[str, Any]:
    """Multiplications in the products of this graph, and those of them whose result has more than 16 bits."""
    work = wide = 0.0
    for node in graph_behind(root, ())[0]:
        operation = kind(node)
        if operation in _PRODUCTS:
            made: Any = getattr(node, "_input_metadata", ())
            summed = _summed(node, operation)
            if len(made) == 1 and summed:
                count = float(math.prod(int(size) for size in made[0].shape) * summed)
                work += count
                wide += count * (made[0].dtype in (torch.float32, torch.float64))
    if not work:
        return {}
    return {
        name: torch.full((), value, dtype=torch.float64, device=device)
        for name, value in zip(COLUMNS, (work, wide), strict=True)
    }


def _summed(node: Any, operation: str) -> int:
    """Products that each value of the result is the sum of; 0 where that is not known."""
    sizes, factor = _PRODUCTS[operation]
    known: Any = getattr(node, f"_saved_{sizes}", None) if sizes else None
    if known is None:
        held = saved(node, factor)
        known = () if held is None else tuple(held.shape)
    if not known:
        return 0
    return math.prod(int(size) for size in known[1:]) if operation == "Convolution" else int(known[-1])
