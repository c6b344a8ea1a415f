"""Attention's weights that are masked after their softmax: what a row of them has lost, read from the graph."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.tensors import graphs
from tracelyze.collectors.tensors.embedded_ids import ATTENTION
from tracelyze.collectors.tensors.graphs import COPIES, SQUEEZES, VIEWS, Graph
from tracelyze.collectors.tensors.saved_values import saved

MAX_SOFTMAXES = 4
MAX_ELEMENTS = 2**20  # of the weights that are read
KEPT = frozenset((*VIEWS, *SQUEEZES, *COPIES, "Expand", "Transpose", "Permute"))
DROPS = ("NativeDropout", "Mul")
MASKS = ("Mul", "MaskedFill", "Tril", "Where")
PRODUCTS = ("Bmm", "Mm")
COLUMNS = ("softmaxes", "masked_rows", "masked_regularly")


def columns(torch: Any, root: Any, device: Any) -> dict[str, Any]:
    """Softmaxes of attention that were read, the largest share of rows that lost a part of their weight to a mask, and
    whether that mask is one of the order or of whole positions, as opposed to one that is drawn."""
    graph = Graph(root)
    softmaxes = graph.of_kind(*ATTENTION)[:MAX_SOFTMAXES]
    if not graph.whole or not softmaxes:
        return {}
    rows, regular = [], []
    for node in softmaxes:
        mask = _mask_after(graph, node)
        result = None if mask is None else saved(node, "result")
        if mask is None or result is None or result.dim() < 3 or result.numel() > MAX_ELEMENTS:
            continue
        kept = _kept(torch, graph, mask, result.detach())
        if kept is not None:
            share, ordered = _lost(result.detach(), kept)
            rows.append(share)
            regular.append(ordered)
    none = torch.zeros((), dtype=torch.float64, device=device)
    masked = torch.stack(rows).amax() if rows else none
    regularly = torch.stack(regular).all().double() if rows else none
    return {"softmaxes": none + len(softmaxes), "masked_rows": masked, "masked_regularly": regularly}


def _mask_after(graph: Graph, softmax: Any) -> Any:
    """The operation that masks what a softmax made, on the way to a product with the values; None if there is none, or
    if the weights are divided or changed otherwise before it."""
    found, node = None, softmax
    while True:
        following = graph.users.get(node, [])
        if len(following) != 1:
            return None
        node = following[0]
        kind = graph.nodes[node]
        if kind in PRODUCTS:
            return found  # einsum may put either first
        if found is None and kind in MASKS:
            found = node
        elif kind not in KEPT and kind not in DROPS:
            return None


def _kept(torch: Any, graph: Graph, node: Any, weights: Any) -> Any:
    """Ones where a mask leaves the weights as they are, zeros where it takes them away; None: it is another thing."""
    kind = graph.nodes[node]
    if kind == "Tril":
        return torch.ones_like(weights).tril(getattr(node, "_saved_diagonal", 0))
    given = graphs.parts(node)
    if kind == "Mul":
        if len(given) != 2 or (given[0] is None) == (given[1] is None):
            return None
        mask = saved(node, "other" if given[1] is None else "self")
    elif kind == "MaskedFill":
        mask = saved(node, "mask")
        mask = None if mask is None else ~mask
    else:
        mask = saved(node, "condition")
        mask = mask if mask is None or given[0] is not None else ~mask
    if mask is None or mask.dim() > weights.dim() or mask.device != weights.device:
        return None
    try:
        return mask.detach().to(weights.dtype).expand_as(weights)
    except RuntimeError:  # the weights were reshaped in between
        return None


def _lost(weights: Any, kept: Any) -> tuple[Any, Any]:
    """Share of the rows that lost a part of their weight, and whether it is a mask of the order, or of positions."""
    binary = ((kept == 0) | (kept == 1)).all()  # dropout scales what it leaves
    lost = (kept == 0) & (weights > 1e-4)
    some = lost.any(-1) & ((kept == 1) & (weights > 0)).any(-1)
    return some.double().mean() * binary, _is_regular(kept == 0)


def _is_regular(hidden: Any) -> Any:
    """Whether what is hidden are positions behind a row's own, positions that are hidden from all rows, or both. Rows
    that see nothing say nothing: those of padding are often masked as a whole."""
    later = hidden.new_ones(hidden.shape[-2:]).triu(1)
    causal = (hidden | ~later).all()
    looked = ~hidden.all(-1, keepdim=True) & ~(later & causal)
    some, every = (hidden & looked).any(-2), (hidden | ~looked).all(-2)
    return ~hidden.tril(0).any() | ((some == every) | (~looked).all(-2)).all()
