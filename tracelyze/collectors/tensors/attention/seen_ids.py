"""Ids that attention may look at: a mask the wrong way round hides the ids of each row and shows its padding.

The graph behind a loss holds the ids that were embedded, and the weights of attention or the mask that it was given. No
position may be looked at whose weight is zero for every query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracelyze.collectors.tensors.embedded_ids import ATTENTION
from tracelyze.collectors.tensors.graphs import Graph
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved

MOST_LAYERS, MOST_IDS, MOST_ROWS = 8, 4, 64
MOST_ELEMENTS = 2**20  # of the weights of a layer that are read
HIDES = -1e3  # what is added to a score: a weight of exp(-1000) is zero
IN_FRONT = 1  # positions that a model puts before the ids: a class token
COLUMNS = ("hiding_rows", "one_id_rows", "one_id")


def columns(torch: Any, root: Any, device: Any) -> dict[str, Any]:
    """Rows of ids of which attention hides several; the share of them in which all that it may look at is one id, the
    same in all of these rows; and that id."""
    graph = Graph(root)
    layers = [node for node, kind in graph.nodes.items() if kind in ATTENTION or kind.startswith("ScaledDotProduct")]
    if not graph.whole or not layers:
        return {}
    for ids in _embedded(torch, graph, device):
        seen = [one for node in layers[:MOST_LAYERS] for one in _seen(torch, node, ids)]
        if seen:  # of several layers, one may look at a summary of all, as at a class token
            return _told(torch, ids, torch.stack(seen).any(0))
    return {}


def _embedded(torch: Any, graph: Graph, device: Any) -> Iterator[Any]:
    """The ids of rows [samples, positions], and also turned, where a model takes them with positions first."""
    for node in graph.of_kind("Embedding")[:MOST_IDS]:
        ids = saved(node, "indices")
        if ids is not None and ids.dim() == 2 and is_plain(torch, ids) and ids.device == device:
            yield ids.detach()
            yield ids.detach().t()


def _seen(torch: Any, node: Any, ids: Any) -> Iterator[Any]:
    """Which positions of these ids attention may look at: all, if that is not known; nothing where it is attention to
    something else."""
    rows, positions = ids.shape
    if rows < 2 or positions < 2:
        return
    weights = saved(node, "result")
    if weights is None:
        mask = saved(node, "attn_mask")
        mask = saved(node, "attn_bias") if mask is None else mask
        weights = mask if mask is None or mask.dtype is torch.bool else mask > HIDES
    if weights is None or weights.numel() > MOST_ELEMENTS:
        yield torch.ones_like(ids, dtype=torch.bool)
    elif weights.dim() > 1 and not weights.shape[0] % rows and 0 <= weights.shape[-1] - positions <= IN_FRONT:
        each = (weights.detach() > 0).reshape(rows, -1, weights.shape[-1])
        yield each.any(1)[:, -positions:]


def _told(torch: Any, ids: Any, seen: Any) -> dict[str, Any]:
    ids, seen = ids[:MOST_ROWS], seen[:MOST_ROWS]
    above, below = int(torch.iinfo(ids.dtype).max), -1
    lowest, highest = ids.masked_fill(~seen, above).amin(1), ids.masked_fill(~seen, below).amax(1)
    several = ids.masked_fill(seen, above).amin(1) < ids.masked_fill(seen, below).amax(1)
    one = several & (lowest == highest)
    which = lowest.masked_fill(~one, below).amax()
    hiding, same = several & seen.any(1), one & (lowest == which)
    return {
        "hiding_rows": hiding.sum().double(),
        "one_id_rows": same.sum() / hiding.sum().clamp(min=1).double(),
        "one_id": which.double(),
    }
