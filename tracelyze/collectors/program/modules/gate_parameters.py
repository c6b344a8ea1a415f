"""Gates that are no modules: a matrix of the model's own (`x @ self.router`) beside the experts that it chooses among.

No module returns their scores. What the model computed of them stands in the autograd graph behind its output: a
softmax, or a choice of the largest, that the matrix leads to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tracelyze.collectors.tensors import graphs, saved_values

MAX_NODES = 4096  # of a graph that are looked at
MAX_DEPTH = 6  # operations between the matrix and the choice: the product, a bias, a scale, noise, views
SCORES, CHOICES = ("Softmax", "LogSoftmax"), ("Topk", "Max")


class GateParameter(NamedTuple):
    """A matrix that may be a gate, by its name, and the number of experts beside it."""

    parameter: Any
    name: str
    experts: int


def scores(torch: Any, outputs: list[Any], gates: list[GateParameter]) -> Iterator[tuple[GateParameter, Any]]:
    """The gates that a forward used, each with one row of scores for each token: the largest is its first choice."""
    waiting = {id(gate.parameter): gate for gate in gates}
    roots = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    for node in graphs.nodes_behind(roots, MAX_NODES):
        if not waiting:
            return
        kind = saved_values.kind(node)
        gate = _gate_before(node, waiting) if kind in SCORES or kind in CHOICES else None
        found = None if gate is None else _scores(torch, node, kind, gate.experts)
        if gate is not None and found is not None:
            del waiting[id(gate.parameter)]
            yield gate, found


def _gate_before(node: Any, gates: dict[int, GateParameter]) -> GateParameter | None:
    for level in graphs.levels(node, MAX_DEPTH):
        known = next((gate for one in level if (gate := gates.get(id(getattr(one, "variable", None))))), None)
        if known is not None:
            return known
    return None


def _scores(torch: Any, node: Any, kind: str, experts: int) -> Any:
    """What the operation put out for each expert; of a choice of the largest, one for the first choice and else 0."""
    if kind in SCORES:
        result = saved_values.saved(node, "result")
        return result if result is not None and result.dim() > 1 and result.shape[-1] == experts else None
    indices = saved_values.saved(node, "indices")
    if indices is None or not indices.dim():
        return None
    first = indices.reshape(-1, indices.shape[-1])[:, 0] if kind == "Topk" else indices.reshape(-1)
    return torch.nn.functional.one_hot(first.clamp(max=experts - 1), experts).float()
