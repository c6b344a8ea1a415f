"""Log-probabilities that a policy's loss weighs by constants, and the operations that they come through on their way.

A weight that corrects for another policy is a constant as well where the script detaches it. The graph then holds the
product of all constants alone; what they are made of stands in variables of the script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.policies import deviations, terms
from tracelyze.collectors.tensors.policies.deviations import products
from tracelyze.collectors.tensors.policies.weights import THROUGH

MAX_BEHIND = 64  # operations between a weight and the choice


@dataclass(frozen=True)
class Weighed:
    """`node`: what made the log-probabilities. `weights`: what they are multiplied by on their way to the loss.
    `nodes`: the operations between the nearest weight and the choice."""

    node: Any
    weights: tuple[Any, ...]
    nodes: frozenset[Any]


def weighed(torch: Any, root: Any) -> Weighed | None:
    """The log-probabilities that the loss multiplies by most constants, which have several elements; None if there are
    none."""
    found: Weighed | None = None
    for chosen, weights in products(torch, root):
        if found is not None and len(weights) <= len(found.weights):
            continue
        if terms.is_log_probability(chosen) or deviations.of_law(torch, chosen) is not None:
            found = Weighed(chosen, weights, _way(chosen))
    return found


def _way(start: Any) -> frozenset[Any]:
    waiting, seen = [start], {start}
    while waiting and len(seen) < MAX_BEHIND:
        node = waiting.pop(0)
        if saved_values.kind(node) in THROUGH:
            new = [one for one in graphs.following(node) if one not in seen]
            seen.update(new)
            waiting += new
    return frozenset(seen)
