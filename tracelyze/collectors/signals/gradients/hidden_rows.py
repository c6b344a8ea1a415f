"""Attention whose rows may all be masked, below an operation that hides them: their softmax is NaN, and though the loss
does not see it, the backward multiplies it by 0, which is NaN again.

Only the shape of the graph is read, which is there after the backward has released what it saved.
"""

from __future__ import annotations

from typing import Any, Final

from tracelyze.collectors.tensors import graphs, saved_values

MASKED_ROWS: Final = "softmax of rows that are masked everywhere"
HIDES: Final = ("MaskedFill", "Where", "NanToNum", "Index")
SOFTMAX: Final = "Softmax"  # that of scaled_dot_product_attention is 0 in such rows
PRODUCTS: Final = ("Bmm", "Mm")
_TO_MASK: Final = (*graphs.VIEWS, *graphs.SQUEEZES, *graphs.TURNS, *graphs.COPIES, "Expand", "Div", "Mul", "Add")
_TO_PRODUCT: Final = (*graphs.VIEWS, *graphs.SQUEEZES, *graphs.TURNS, *graphs.COPIES, "Expand", "NativeDropout", "Mul")
_MOST: Final = 12  # nodes between a softmax and its mask, or the product with the values


def has_them(order: list[Any], leads_to_finite: set[int], leads_to_broken: set[int]) -> bool:
    """Whether such attention lies between the end of a graph, whose nodes are `order`, and the broken leaves alone."""
    softmaxes = [node for node in order if saved_values.kind(node) == SOFTMAX]
    masks = {id(node): _mask(node) for node in softmaxes}
    weights = _weighing(order)
    own = {id(mask) for mask in masks.values()}
    hiding = [node for node in order if saved_values.kind(node) in HIDES and id(node) not in own]
    hidden = {id(node) for node in graphs.nodes_behind(hiding, graphs.MAX_WALKED)} if hiding else set()
    return any(
        id(node) in hidden & weights & leads_to_broken and id(node) not in leads_to_finite
        for node in softmaxes
        if masks[id(node)] is not None
    )


def tables(order: list[Any]) -> set[int]:
    """Ids of the tables of embeddings among the leaves: the row of padding, which alone may lead to rows that are
    masked everywhere, gets no gradient."""
    looked_up = [one for node in order if saved_values.kind(node) == "Embedding" for one in graphs.following(node)]
    return {id(getattr(leaf, "variable", None)) for leaf in looked_up}


def _weighing(order: list[Any]) -> set[int]:
    """Ids of what is multiplied with a matrix, as attention's weights are: with the values."""
    found: set[int] = set()
    for product in order:
        if saved_values.kind(product) in PRODUCTS:
            for given in graphs.following(product):
                found.update(id(node) for node, _ in graphs.walk(given, _MOST, _TO_PRODUCT))
    return found


def _mask(softmax: Any) -> Any:
    """The operation that masks the scores of a softmax: fills them, or adds a constant. None where none is found."""
    for node, kind in graphs.walk(softmax, _MOST, (SOFTMAX, *_TO_MASK)):
        if kind in ("MaskedFill", "Where") or (kind in ("Add", "Baddbmm") and None in graphs.parts(node)[:2]):
            return node
    return None
