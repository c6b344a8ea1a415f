"""Whether a number that gradients are asked of is a loss, where gradients of weights have a graph of their own.

A loss may be computed with weights that a step along such gradients has made (MAML), or have a penalty on them. What is
made of gradients alone is none: a product with a vector, a norm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.written_out.errors import ELEMENTWISE, SHAPING, kind_of

MARK = "tracelyze-gradient"
MAX_NODES = 96  # operations between a number and what it sums up
MAX_BEHIND = 1000  # operations behind a loss among which one of a gradient is looked for
SUMS = ELEMENTWISE | {"Dot", "Mv", "Cat", "Stack", "Expand", "Reshape", "Select", "Slice", "Std", "Var", *SHAPING}


def mark(torch: Any, gradients: Iterable[Any]) -> None:
    """Note of gradients that they are some."""
    for one in gradients:
        if isinstance(one, torch.Tensor) and one.grad_fn is not None:
            one.grad_fn.metadata[MARK] = True


def is_loss(root: Any) -> bool:
    """Whether a number sums up something beside gradients, and gradients stand somewhere behind it."""
    return root is not None and _sums_up_more(root) and _is_behind(root)


def _sums_up_more(root: Any) -> bool:
    waiting, seen = [root], {root}
    while waiting and len(seen) < MAX_NODES:
        node = waiting.pop(0)
        if MARK in node.metadata:
            continue
        if kind_of(node) not in SUMS:
            if saved_values.operation(node) != graphs.LEAF:
                return True
            continue
        new = [one for one in graphs.following(node) if one not in seen]
        seen.update(new)
        waiting += new
    return False


def _is_behind(root: Any) -> bool:
    waiting, seen = [root], {root}
    for node in waiting:
        if MARK in node.metadata:
            return True
        if len(seen) < MAX_BEHIND:
            new = [one for one in graphs.following(node) if one not in seen]
            seen.update(new)
            waiting += new
    return False
