"""Activation functions that are no modules, read from the autograd graph of a watched forward.

`F.relu(layer(x))` calls no module, so that watching modules does not see it. Its node in the graph saved its result for
the backward, and leads to the layer that it follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tracelyze.collectors.tensors import graphs, saved_values

KINDS = {"ReluBackward0": "ReLU", "TanhBackward0": "Tanh", "SigmoidBackward0": "Sigmoid"}
MAX_NODES = 4096  # of a graph that are looked at
MOST = {"ReLU": 64, "Tanh": 8, "Sigmoid": 8}  # of one forward: the gates of recurrences by hand are many
MAX_DEPTH = 4  # operations between a function and the module that it follows, as in relu(norm(x) + shortcut)


class Followed(NamedTuple):
    """A module call: which module, its name, and the row that describes its output."""

    module: Any
    name: str
    row: dict[str, Any]


class FunctionalActivations:
    """The functional activations of one forward. Holds nodes of its graph until it is dropped."""

    def __init__(self) -> None:
        self._calls: dict[Any, Followed] = {}

    def returned(self, module: Any, name: str, row: dict[str, Any], output: Any) -> None:
        """A module put out this tensor. What contains another module and returns its output came later: the first
        one counts."""
        if output.grad_fn is not None:
            self._calls.setdefault(output.grad_fn, Followed(module, name, row))

    def found(self, outputs: list[Any]) -> Iterator[tuple[str, Followed, Any]]:
        """The kind of each activation function that no module called, the module before it, and what it put out. The
        functions are met from the end of the forward to its beginning; a squashing one counts once for each module."""
        seen: dict[str, list[str]] = {kind: [] for kind in MOST}
        for node in graphs.nodes_behind([one.grad_fn for one in outputs if one.grad_fn is not None], MAX_NODES):
            kind = KINDS.get(saved_values.operation(node))
            if kind is None or len(seen[kind]) >= MOST[kind] or self._is_a_module(node, kind):
                continue
            before = self._before(node)
            if before is None or (kind != "ReLU" and before.name in seen[kind]):
                continue
            result = saved_values.saved(node, "result")
            if result is not None:
                seen[kind].append(before.name)
                yield kind, before, result

    def _is_a_module(self, node: Any, kind: str) -> bool:
        call = self._calls.get(node)
        return call is not None and kind in type(call.module).__name__

    def _before(self, node: Any) -> Followed | None:
        """The nearest module call that went into a function."""
        for level in graphs.levels(node, MAX_DEPTH):
            known = next((self._calls[one] for one in level if one in self._calls), None)
            if known is not None:
                return known
        return None
