"""Attention whose softmax runs over another dimension than the one that its product with the values sums over.

Scores are a product of two things that are trained, shared out by a softmax, and multiplied with the values: each
answer is a mean of values where the softmax runs over the dimension that this product sums over. The dimensions are
followed from the softmax to the product through transpositions and views; where that is not possible, nothing is said.
Pooling by attention multiplies its weights with the values element by element, and sums.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.tensors import graphs
from tracelyze.collectors.tensors.embedded_ids import ATTENTION
from tracelyze.collectors.tensors.graphs import COPIES, VIEWS, Graph
from tracelyze.collectors.tensors.saved_values import saved, signed

MAX_SOFTMAXES = 16
MAX_STEPS = 16  # operations between scores, softmax and product
PRODUCTS = ("Bmm", "Mm")
SAME = (*COPIES, "Expand", "NativeDropout")
WITH_CONSTANT = ("Mul", "Div", "Add", "Sub", "MaskedFill", "Where", "Tril")
COLUMNS = ("products", "products_wrong", "softmax_axis", "summed_axis")


def columns(torch: Any, root: Any, device: Any) -> dict[str, Any]:
    """Softmaxes of attention that were followed to their product, those of them that run over another dimension than it
    sums over, and for one of these both dimensions, counted from the end."""
    graph = Graph(root)
    softmaxes = graph.of_kind(*ATTENTION)[:MAX_SOFTMAXES]
    if not graph.whole or not softmaxes:
        return {}
    users: dict[Any, list[tuple[Any, int]]] = {}
    for user in graph.nodes:
        for place, (used, _) in enumerate(user.next_functions):
            if used is not None:
                users.setdefault(used, []).append((user, place))
    found = [_axes(graph, users, one) if _of_scores(graph, one) else _pooled(graph, users, one) for one in softmaxes]
    pairs = [pair for pair in found if pair is not None]
    wrong = [(over, summed) for over, summed in pairs if over != summed]
    if not pairs:
        return {}
    over, summed = wrong[0] if wrong else pairs[0]
    numbers = (len(pairs), len(wrong), over, summed)
    return {
        name: torch.full((), float(number), dtype=torch.float64, device=device)
        for name, number in zip(COLUMNS, numbers, strict=True)
    }


def _of_scores(graph: Graph, softmax: Any) -> bool:
    """Whether what a softmax is given is a product of two things that are trained, scaled and masked at most."""
    node = softmax
    for _ in range(MAX_STEPS):
        given = graphs.following(node)
        if node is not softmax and graph.nodes.get(node) in (*PRODUCTS, "Baddbmm"):
            return len(given) > 1
        if len(given) != 1:
            return False
        node = given[0]
    return False


def _pooled(graph: Graph, users: dict[Any, list[tuple[Any, int]]], softmax: Any) -> tuple[int, int] | None:
    """The dimension of a softmax whose scores are no product, and the one that is summed over: of attention pooling,
    with one weight for each position.

    Over another dimension than the one that is summed over, a softmax may share positions out among clusters, slots or
    capsules. Only over the first dimension, the samples, or over a single number, it cannot be meant.
    """
    pair = _axes(graph, users, softmax)
    if pair is None or pair[0] == pair[1]:
        return pair
    shape = saved(softmax, "result").shape
    return pair if pair[0] == -len(shape) or shape[pair[0]] == 1 else None


def _axes(graph: Graph, users: dict[Any, list[tuple[Any, int]]], softmax: Any) -> tuple[int, int] | None:
    """The dimension that a softmax runs over and the one that the product behind it sums over, both of the softmax and
    counted from its end; None if the way from one to the other is not known."""
    result, dim = saved(softmax, "result"), getattr(softmax, "_saved_dim", None)
    if result is None or dim is None:
        return None
    rank, dim = result.dim(), signed(dim)
    axes: list[int | None] = [axis - rank for axis in range(rank)]  # of what is followed, each as one of the softmax's
    node = softmax
    for _ in range(MAX_STEPS):
        following = users.get(node, [])
        if len(following) != 1:
            return None
        node, place = following[0]
        kind = graph.nodes[node]
        if kind in PRODUCTS:
            side = saved(node, "self" if place == 0 else "mat2")
            summed = axes[-1 if place == 0 else -2]
            if (
                summed is None
                or len(graphs.following(node)) < 2
                or (side is not None and side.shape[-1 - place] != result.shape[summed])
            ):
                return None
            return dim % rank - rank, summed
        if kind == "Mul" and len(graphs.following(node)) == 2:
            summed = _summed(graph, users, node, axes, tuple(result.shape))
            return None if summed is None else (dim % rank - rank, summed)
        moved = _moved(node, kind, axes)
        if moved is None:
            return None
        axes = moved
    return None


def _summed(
    graph: Graph, users: dict[Any, list[tuple[Any, int]]], product: Any, axes: list[int | None], sizes: tuple[int, ...]
) -> int | None:
    """The dimension that a product of weights and values, element by element, is then summed over. The weights are one
    for each position: the features, in the last dimension, share it."""
    made, following = getattr(product, "_input_metadata", None), users.get(product, [])
    if not made or len(following) != 1 or graph.nodes[following[0][0]] != "Sum":
        return None
    shape, dims = made[0].shape, getattr(following[0][0], "_saved_dim", None)
    if not isinstance(dims, (tuple, list)) or len(dims) != 1 or len(shape) < len(axes):
        return None
    of = [None] * (len(shape) - len(axes)) + axes
    shared = shape[-1] > 1 and (of[-1] is None or sizes[of[-1]] == 1)
    summed = of[signed(dims[0]) % len(shape)]
    return summed if shared and summed is not None and sizes[summed] > 1 else None


def _moved(node: Any, kind: str, axes: list[int | None]) -> list[int | None] | None:
    """Which dimension is which behind an operation; None if it is none that leaves the weights what they are."""
    rank = len(axes)
    if kind in SAME:
        return axes
    if kind in WITH_CONSTANT:
        return axes if len(graphs.following(node)) == 1 else None
    if kind in VIEWS:
        made = getattr(node, "_input_metadata", None)
        after = tuple(int(size) for size in made[0].shape) if made else ()
        before = tuple(int(size) for size in getattr(node, "_saved_self_sym_sizes", ()))
        return _viewed(axes, before, after) if made and len(before) == rank else None
    if kind == "Transpose":
        first, second = (signed(getattr(node, f"_saved_dim{number}")) % rank for number in (0, 1))
        axes = [*axes]
        axes[first], axes[second] = axes[second], axes[first]
        return axes
    if kind == "Permute":
        return [axes[signed(one) % rank] for one in node._saved_dims]
    if kind == "Unsqueeze":
        at = signed(node._saved_dim) % (rank + 1)
        return [*axes[:at], None, *axes[at:]]
    return None


def _viewed(axes: list[int | None], before: tuple[int, ...], after: tuple[int, ...]) -> list[int | None]:
    """Which dimension is which behind a view: from the last one on they are the same, sizes of 1 aside, until sizes
    differ; those before are merged or split."""
    known = [axis for axis, size in zip(axes, before, strict=True) if size > 1]
    sizes = [size for size in before if size > 1]
    found: list[int | None] = []
    for size in reversed(after):
        if size == 1:
            found.append(None)
        elif sizes and sizes[-1] == size:
            sizes.pop()
            found.append(known.pop())
        else:
            sizes = []
            found.append(None)
    return found[::-1]
