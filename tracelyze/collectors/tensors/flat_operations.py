"""Operations whose derivative is zero wherever they have one, in the way of every parameter behind a loss."""

from __future__ import annotations

from typing import Any, Final

from tracelyze.collectors.tensors.graphs import MAX_WALKED, following
from tracelyze.collectors.tensors.saved_values import kind

FLAT: Final = {"Sign": "sign", "Sgn": "sgn", "Round": "round", "Floor": "floor", "Ceil": "ceil", "Trunc": "trunc"}
_LEAF: Final = "AccumulateGrad"


def in_every_way(root: Any) -> list[str]:
    """The names of such operations, if each way from the loss to a parameter goes through one; else none."""
    order, known, found = [root], {id(root)}, set[str]()
    for node in order:
        if len(order) >= MAX_WALKED or type(node).__name__ == _LEAF:
            return []
        name = FLAT.get(kind(node))
        if name is not None:
            found.add(name)
            continue
        for one in following(node):
            if id(one) not in known:
                known.add(id(one))
                order.append(one)
    return sorted(found)
