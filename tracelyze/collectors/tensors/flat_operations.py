"""Operations whose derivative is zero wherever they have one, in the way of every parameter behind a loss."""

from __future__ import annotations

from typing import Any, Final

from tracelyze.collectors.tensors.saved_values import MAX_NODES, kind

FLAT: Final = {"Sign": "sign", "Sgn": "sgn", "Round": "round", "Floor": "floor", "Ceil": "ceil", "Trunc": "trunc"}
_LEAF: Final = "AccumulateGrad"


def in_every_way(root: Any) -> list[str]:
    """The names of such operations, if each way from the loss to a parameter goes through one; else none."""
    order, known, found = [root], {id(root)}, set[str]()
    for node in order:
        if len(order) >= MAX_NODES or type(node).__name__ == _LEAF:
            return []
        name = FLAT.get(kind(node))
        if name is not None:
            found.add(name)
            continue
        for following, _ in node.next_functions:
            if following is not None and id(following) not in known:
                known.add(id(following))
                order.append(following)
    return sorted(found)
