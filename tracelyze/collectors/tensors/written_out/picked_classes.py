"""A negative log-likelihood that the script writes out itself: log-probabilities, of which one per sample is picked.

`logp.gather(1, y[:, None])` and `logp[torch.arange(n), y]` pick along the classes. What they pick from has to be
normalised over that dimension. Where the log_softmax behind them ran over another one, samples compete for a class.

`Categorical(probs=probs).log_prob(actions)` divides by the sum over the classes first, which hides that a softmax over
another dimension gave the probabilities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tracelyze.collectors.tensors.graphs import COPIES, Graph
from tracelyze.collectors.tensors.saved_values import saved, saved_several, signed

MAX_PICKS = 8
LIMITED = ("Clamp", "ClampMin", "Expand", *COPIES)  # between the probabilities of a distribution and their logarithms
MAX_LIMITS = 6
COLUMNS = ("picks", "picks_wrong", "picks_softmax", "picks_axis")


class Pick(NamedTuple):
    """The dimension that the log_softmax ran over, the one that is picked along (both from the end), and a tensor that
    says whether the values of the index are those of a pick."""

    over: int
    along: int
    holds: Any


def columns(torch: Any, root: Any, device: Any) -> dict[str, Any]:
    """Log-softmaxes that one value per sample is picked from, those that ran over another dimension, and for one of
    these both dimensions, counted from the end."""
    graph = Graph(root)
    kinds = graph.nodes.values()
    if (
        not graph.whole
        or not ("LogSoftmax" in kinds or "Softmax" in kinds)
        or not ("Gather" in kinds or "Index" in kinds)
    ):
        return {}
    found = [_pick(torch, graph, node) for node in graph.of_kind("Gather", "Index")[:MAX_PICKS]]
    picks = [pick for pick in found if pick is not None and pick.holds.device == device]
    if not picks:
        return {}
    number, wrong, over, along = (torch.zeros((), dtype=torch.float64, device=device) for _ in COLUMNS)
    for pick in sorted(picks, key=lambda one: one.over != one.along):  # the last ones give the dimensions
        number, wrong = number + pick.holds, wrong + pick.holds * (pick.over != pick.along)
        over, along = torch.where(pick.holds, pick.over, over), torch.where(pick.holds, pick.along, along)
    return dict(zip(COLUMNS, (number, wrong, over, along), strict=True))


def _pick(torch: Any, graph: Graph, node: Any) -> Pick | None:
    """What an operation picks from a log_softmax; None if this is no such pick.

    All pairs of a batch may be normalised either way, so the two sizes have to differ.
    """
    first = source = node.next_functions[0][0]
    while source is not None and graph.nodes[source] in COPIES and len(graph.users[source]) == 1:
        source = source.next_functions[0][0]
    if source is None or graph.nodes[source] != "LogSoftmax" or len(graph.users[source]) > 1:
        source = _evened(graph, first)
    if source is None:
        return None
    result, dim = saved(source, "result"), getattr(source, "_saved_dim", None)
    if result is None or dim is None or not result.dim():
        return None
    rank, sizes = result.dim(), tuple(result.shape)
    over = signed(dim) % rank
    found = _gathered(node, sizes, over) if graph.nodes[node] == "Gather" else _indexed(torch, node, sizes)
    if found is None:
        return None
    along, holds = found
    if along != over and (sizes[along] == sizes[over] or 1 in (sizes[along], sizes[over])):
        return None
    return Pick(over - rank, along - rank, holds)


def _evened(graph: Graph, node: Any) -> Any:
    """The softmax whose values a distribution divides by their sum before it takes the logarithm; None if there is
    none. Probabilities that a softmax over the classes gave have the sum 1."""
    divided = _behind(graph, node, (*LIMITED, "Log"))
    if divided is None or graph.nodes[divided] != "Div" or len(divided.next_functions) != 2:
        return None
    (softmax, _), (total, _) = divided.next_functions
    softmax = _behind(graph, softmax, COPIES)
    if softmax is None or graph.nodes[softmax] != "Softmax" or total is None or graph.nodes[total] != "Sum":
        return None
    return softmax if _behind(graph, total.next_functions[0][0], COPIES) is softmax else None


def _behind(graph: Graph, node: Any, kinds: tuple[str, ...]) -> Any:
    """The nearest operation behind one, itself included, that is of none of these kinds."""
    for _ in range(MAX_LIMITS):
        if node is None or graph.nodes.get(node) not in kinds:
            break
        node = node.next_functions[0][0]
    return node if node in graph.nodes else None


def _gathered(node: Any, sizes: tuple[int, ...], over: int) -> tuple[int, Any] | None:
    """The dimension that gather picks one value along, for each place of all others. An index that is the same all
    along the dimension of the softmax picks whole distributions, those at the last position of each sample."""
    index, dim = saved(node, "index"), getattr(node, "_saved_dim", None)
    if index is None or dim is None or index.dim() != len(sizes):
        return None
    along = signed(dim) % len(sizes)
    if tuple(index.shape) != (*sizes[:along], 1, *sizes[along + 1 :]):
        return None
    return along, (index == index).all() if along == over else (index != index.narrow(over, 0, 1)).any()


def _indexed(torch: Any, node: Any, sizes: tuple[int, ...]) -> tuple[int, Any] | None:
    """The dimension that `logp[torch.arange(n), y]` picks along: the one whose index does not count the samples."""
    given = saved_several(node, "indices")
    if len(sizes) != 2 or len(given) != 2 or any(one is None or one.dim() != 1 for one in given):
        return None
    counting = [place for place, one in enumerate(given) if len(one) == sizes[place]]
    if len(counting) != 1:
        return None
    index = given[counting[0]]
    return 1 - counting[0], (index == torch.arange(len(index), device=index.device)).all()
