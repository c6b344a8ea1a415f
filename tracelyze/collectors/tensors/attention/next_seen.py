"""Whether the scores of a position could see the id that they are to name: attention without a causal mask, or a
recurrent layer that also runs backwards.

The graph behind the scores is walked down where it leaves positions alone. Attention that is met there, whose queries
and keys come from one tensor, has saved its weights or its mask: what it gives to the next position is read from them.
A recurrent layer has saved its direction, and its input, time first.
"""

from __future__ import annotations

import math
from typing import Any

from tracelyze.collectors.tensors import graphs
from tracelyze.collectors.tensors.attention import position_axis
from tracelyze.collectors.tensors.graphs import COPIES, SQUEEZES, TURNS, VIEWS
from tracelyze.collectors.tensors.saved_values import saved, sizes_of
from tracelyze.collectors.tensors.targets.sequences import Sequences

COLUMNS = ("next_targets", "sees_next")
ROWS = 64  # of a batch that are looked at
SHORTEST = 4  # positions of a sequence
NEXT = 0.99  # share of the targets that have to be the id of the next position
WEIGHT = 1e-6  # of a position that is seen: masks of -1e4 and below leave exactly 0, a softmax over 10,000 leaves more
PRODUCTS, LINEAR = ("Bmm", "Baddbmm"), ("Mm", "Addmm", "Bmm", "Baddbmm")
RECURRENT = ("RnnLayer", "Rnn")
Attending = tuple[Any, Any, Any]  # weights, product with the values, queries
BETWEEN = 64  # operations between a product and the softmax that belongs to it


class Streams:
    """Where values of the embedded positions flow, on the way from scores down to one embedding."""

    def __init__(self, graph: Any, embedding: Any, ids: Any, keeping: frozenset[str]) -> None:
        self.graph, self.keeping = graph, keeping
        samples, length = ids.shape
        self.counts = (samples * length, samples * (length - 1), (samples - 1) * length)  # with the last ones cut off
        self.depends, waiting = {embedding}, [embedding]
        while waiting:
            fresh = set(graph.users.get(waiting.pop(), ())) - self.depends
            self.depends |= fresh
            waiting += fresh

    def below(self, node: Any) -> list[Any]:
        return [one for one in graphs.parts(node) if one in self.depends]

    def keeps(self, node: Any) -> bool:
        """Whether every value stays at its position. What is cut off behind the last one moves nothing."""
        kind = self.graph.nodes[node]
        return kind in self.keeping or (kind == "Slice along another" and getattr(node, "_saved_start", 1) == 0)

    def projects(self, node: Any) -> bool:
        """Whether it is a product with weights that takes every position by itself."""
        made = sizes_of(node) if self.graph.nodes[node] in ("Mm", "Addmm") else None
        return made is not None and made[0] in self.counts

    def gathers(self, node: Any) -> bool:
        """Whether it puts features beside each other that were made apart, as by a list of heads."""
        made = sizes_of(node) if self.graph.nodes[node] == "Cat along last" else None
        return made is not None and math.prod(made[:-1]) in self.counts

    def sources(self, node: Any) -> set[Any]:
        """What goes into the products that make queries or keys of it, behind views."""
        found: set[Any] = set()
        for product in self._first(node, LINEAR):
            for one in self.below(product):
                while self.graph.nodes[one] in MOVING and len(self.below(one)) == 1:
                    one = self.below(one)[0]
                found.add(one)
        return found

    def _first(self, node: Any, kinds: tuple[str, ...]) -> list[Any]:
        found, seen, waiting = [], {node}, [node]
        while waiting:
            one = waiting.pop()
            if self.graph.nodes[one] in kinds:
                found.append(one)
            elif self.keeps(one) or self.graph.nodes[one] in SPLITTING:
                fresh = set(self.below(one)) - seen
                seen |= fresh
                waiting += fresh
        return found

    def attention(self, node: Any) -> tuple[Any, Any, Any] | None:
        """What makes the weights, and what makes queries and keys, if this is the product with the values."""
        kind = self.graph.nodes[node]
        edges = node.next_functions
        if kind.startswith("ScaledDotProduct"):
            return (node, edges[0][0], edges[1][0]) if len(edges) > 1 else None
        if kind not in PRODUCTS:
            return None
        softmax = self._followed(edges[-2][0], SOFTMAX)
        scores = softmax and self._followed(softmax.next_functions[0][0], PRODUCTS)
        return (softmax, scores.next_functions[-2][0], scores.next_functions[-1][0]) if scores else None

    def recurrent(self, node: Any) -> bool:
        """Whether it is a recurrent layer whose outputs are used, not its last state, and that begins from nothing."""
        if not self.graph.nodes[node].endswith(RECURRENT):
            return False
        states = [index for _, to, index in self.graph.edges if to is node and index]
        return not states and not any(one in self.depends for one, _ in node.next_functions[1:])

    def _followed(self, node: Any, kinds: tuple[str, ...]) -> Any:
        """The only operation of a kind below, behind those that leave every value of it in its place."""
        for _ in range(BETWEEN):
            if node is None or self.graph.nodes.get(node) in kinds:
                return node
            following = self.below(node) if node in self.depends else []
            if len(following) != 1 or not (self.keeps(node) or self.graph.nodes[node] in MASKING):
                return None
            node = following[0]
        return None


MOVING = (*VIEWS, *TURNS, *SQUEEZES, *COPIES, "Expand")
SOFTMAX, MASKING = ("Softmax", "SafeSoftmax"), ("MaskedFill", "Where")
SPLITTING = ("Unbind", "Select", "Split along last", "SplitWithSizes along last", "Slice along last", "Cat along last",
             "Stack")  # fmt: skip


def columns(torch: Any, graph: Any, embedding: Any, sequences: Sequences, keeping: frozenset[str]) -> list[Any]:
    """Pairs of the two columns, for either order of samples and time: both as tensors without dimensions."""
    ids, target = sequences.ids, sequences.target
    streams = Streams(graph, embedding, ids, keeping)
    attending, backwards, whole = _mixing(streams)
    found = []
    for time, rows, beside in ((1, ids, target), (0, ids.T, target.T)):
        samples, length = rows.shape
        square = length == samples  # The weights of a square batch fit both orders.
        if length < SHORTEST or (square and not _run_along(time, attending, streams, embedding)):
            continue
        seen = [_seen(torch, weights, product, samples, length, ids.device) for weights, product, _ in attending]
        if not square and (length, samples) in backwards:
            seen.append(torch.ones((1, length - 1), dtype=torch.bool, device=ids.device))
        if not seen or any(one is None for one in seen):
            continue
        rows, beside = rows[:ROWS], beside[:ROWS]
        informative = (rows[:, 1:] != rows[:, :-1]) & (beside[:, :-1] != sequences.ignored)
        same = informative & (rows[:, 1:] == beside[:, :-1])
        count = same.sum()
        shares = torch.stack([(one & same).sum() / count.clamp(min=1) for one in seen])
        share = shares.amax()
        known = (count >= NEXT * informative.sum()) & (count > 0) & ((share > 0) | whole)
        found.append((count.double() * known, torch.where(known, share, math.nan)))
    return found


def _run_along(time: int, attending: list[Attending], streams: Streams, embedding: Any) -> bool:
    """Whether all attention is known to be between positions along this dimension of the ids."""
    return all(position_axis.of_positions(streams, query, embedding) == time for _, _, query in attending)


def best(torch: Any, pairs: list[Any]) -> dict[str, Any]:
    """The embedding, and the order of its dimensions, of which most targets are the next id."""
    if not pairs:
        return {}
    counts, shares = (torch.stack(list(values)) for values in zip(*pairs, strict=True))
    index = (counts + 0.5 * shares.nan_to_num(0.0)).argmax().reshape(1)  # of equal counts, the one that sees more
    return dict(zip(COLUMNS, (counts.gather(0, index)[0], shares.gather(0, index)[0]), strict=True))


def _mixing(streams: Streams) -> tuple[list[Attending], set[tuple[int, int]], bool]:
    """What mixes positions: what makes weights of attention of the positions to each other, with the product with the
    values that uses them and what makes the queries; times and samples of recurrent layers that run backwards, too; and
    whether nothing else may mix them."""
    found, seen, waiting, whole = [], {streams.graph.root}, [streams.graph.root], True
    backwards: set[tuple[int, int]] = set()
    while waiting:
        node = waiting.pop()
        if node not in streams.depends:
            continue
        parts = streams.attention(node)
        if parts is not None:
            weights, query, key = parts
            queries = streams.sources(query) if query in streams.depends else set()
            keys = streams.sources(key) if key in streams.depends else set()
            following = queries & keys
            if following:
                found.append((weights, node, query))
            else:  # Attention to something else: the positions are those of its queries.
                following, whole = queries, whole and key not in streams.depends
        elif streams.keeps(node) or streams.projects(node) or streams.gathers(node):
            following = set(streams.below(node))
        elif streams.recurrent(node):
            following, given = set(streams.below(node)), saved(node, "input")
            if getattr(node, "_saved_reverse", False) or getattr(node, "_saved_bidirectional", False):
                backwards |= set() if given is None else {(given.shape[0], given.shape[1])}
                whole = whole and given is not None
        else:
            following, whole = set(), False
        fresh = following - seen
        seen |= fresh
        waiting += fresh
    return found, backwards, whole


def _seen(torch: Any, node: Any, product: Any, samples: int, length: int, device: Any) -> Any:
    """For every sample and position but the last: whether any head gives weight to the next one. None: unknown."""
    if hasattr(node, "_saved_is_causal"):
        query, key = saved(node, "query"), saved(node, "key")
        if query is None or key is None or query.shape[-2] != length or key.shape[-2] != length:
            return None
        if node._saved_is_causal:
            return torch.zeros((1, length - 1), dtype=torch.bool, device=device)
        name = next((one for one in ("attn_mask", "attn_bias") if hasattr(node, f"_raw_saved_{one}")), None)
        mask = saved(node, name) if name else None
        if mask is None:  # There is none, as queries and keys could be read.
            return torch.ones((1, length - 1), dtype=torch.bool, device=device)
        given = mask if mask.dtype is torch.bool else mask > torch.finfo(mask.dtype).min / 2
    else:
        result = saved(node, "result")
        if result is None:
            return None
        given = result > WEIGHT
    if given.dim() < 2 or given.shape[-1] != length or given.shape[-2] not in (1, length):
        return None
    given = given.detach().expand(*given.shape[:-2], length, length).diagonal(1, -2, -1)
    heads = given.numel() // (length - 1)
    if heads > 1 and heads % samples:
        return None
    seen = given.reshape(samples if heads > 1 else 1, -1, length - 1).any(1)[:ROWS]
    return seen & _used(product, length) if product is not node else seen


def _used(product: Any, length: int) -> Any:
    """For every position but the last: whether the values' product gives weight to the next one in any sample and head.

    A mask that is applied behind the softmax hides it everywhere, dropout only here and there.
    """
    weights = saved(product, "self" if hasattr(product, "_raw_saved_self") else "batch1")
    if weights is None or weights.shape[-2:] != (length, length):
        return True
    return (weights.detach().diagonal(1, -2, -1) > WEIGHT).reshape(-1, length - 1).any(0)
