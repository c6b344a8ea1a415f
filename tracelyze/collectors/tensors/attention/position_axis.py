"""Which dimension of the embedded ids the positions of an attention go back to, where sizes do not show it.

As many samples as positions (32 rows of 32 ids) make square batches. There the views and transpositions between the
embedding and the attention are followed.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from tracelyze.collectors.tensors.graphs import VIEWS
from tracelyze.collectors.tensors.saved_values import signed

RESHAPING = (*VIEWS, "Squeeze")
MOST_OPERATIONS = 64  # between an embedding and an attention


class Axis(NamedTuple):
    """A dimension of a tensor, or a factor of one into which several were merged: `before` are the factors ahead."""

    number: int
    before: int
    size: int


def of_positions(streams: Any, node: Any, embedding: Any) -> int | None:
    """0 or 1: the dimension of the ids that the last but one of what `node` puts out is made of; None: unknown."""
    shape = _made(node)
    if len(shape) < 2:
        return None
    axis: Axis | None = Axis(len(shape) - 2, 1, shape[-2])
    for _ in range(MOST_OPERATIONS):
        if node is embedding:
            return axis.number if axis is not None and axis.before == 1 and axis.number < 2 else None
        axis = _given(streams.graph.nodes[node], node, axis) if axis is not None else None
        following = streams.below(node)
        if axis is None or not following:
            return None
        node = following[0]
    return None


def _made(node: Any) -> list[int]:
    """The shape of what an operation puts out."""
    metadata = getattr(node, "_input_metadata", ())
    return [int(size) for size in metadata[0].shape] if metadata else []


def _given(kind: str, node: Any, axis: Axis) -> Axis | None:
    """The dimension of what an operation was given that this one of its output comes from."""
    shape = _made(node)
    rank = len(shape)
    if axis.number >= rank - 1:
        return None
    if kind in RESHAPING:
        return _reshaped(shape, getattr(node, "_saved_self_sym_sizes", ()), axis)
    if kind == "Transpose":
        dims = [signed(dim) % rank for dim in (node._saved_dim0, node._saved_dim1)]
        order = list(range(rank))
        order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]
        return axis._replace(number=order[axis.number])
    if kind == "Permute":
        return axis._replace(number=signed(node._saved_dims[axis.number]) % rank)
    if kind in ("Unbind", "Select"):
        dim = signed(node._saved_dim) % (rank + 1)
        return axis._replace(number=axis.number + (dim <= axis.number))
    if kind == "Unsqueeze":
        dim = signed(node._saved_dim) % rank
        return None if dim == axis.number else axis._replace(number=axis.number - (dim < axis.number))
    return None if kind in ("T", "Stack") else axis


def _reshaped(made: list[int], given: Any, axis: Axis) -> Axis | None:
    """Where a factor of a shape lies in the shape before a view: views keep the order of all values."""
    ahead = prod(made[: axis.number]) * axis.before
    before = 1
    for number, size in enumerate(given):
        if before <= ahead < before * size:
            inner, rest = divmod(ahead, before)
            return None if rest or size % (inner * axis.size) else Axis(number, inner, axis.size)
        before *= size
    return None
