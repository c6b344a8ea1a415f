"""Autograd graphs: the operations behind a loss or another tensor, and walks from one to the next."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Final

from tracelyze.collectors.tensors import saved_values

MAX_NODES: Final = 2**14  # of a `Graph`
MAX_WALKED: Final = 5000  # nodes, as far as `graph_behind` goes
LEAF: Final = "torch::autograd::AccumulateGrad"  # the operation of a parameter's node, which holds it as `variable`
# Operations that hand values on: as another view, with or without dimensions of size 1, turned, copied, limited.
VIEWS: Final = ("View", "UnsafeView", "ReshapeAlias")  # what versions of torch call a view or a reshape
SQUEEZES: Final = ("Squeeze", "Unsqueeze")
TURNS: Final = ("Transpose", "T", "Permute")
COPIES: Final = ("Clone", "Alias", "ToCopy")
LIMITS: Final = ("Clamp", "ClampMin", "ClampMax")
ALONG_LAST: Final = ("Mean", "Slice", "Cat", "Split", "SplitWithSizes")  # leave positions alone along the last axis


def parts(node: Any) -> list[Any]:
    """The operations that made what an operation was given, one for each of its inputs: None for a constant."""
    return [one for one, _ in node.next_functions]


def following(node: Any) -> list[Any]:
    """The nodes that made the inputs of a node, without constants."""
    return [one for one, _ in node.next_functions if one is not None]


def only_following(node: Any) -> Any:
    """The operation that made the only input which is no constant; None where there are several, or none."""
    found = following(node)
    return found[0] if len(found) == 1 else None


def walk(root: Any, most: int, through: Collection[str] | None = None) -> Iterator[tuple[Any, str]]:
    """The operations behind one, with their kinds: itself first, then the nearest, until `most` are known. It goes on
    behind operations of the kinds `through`; behind all of them where that is None."""
    waiting, seen = deque([root]), {root}
    while waiting and len(seen) < most:
        node = waiting.popleft()
        kind = saved_values.kind(node)
        yield node, kind
        if through is None or kind in through:
            new = [one for one in following(node) if one not in seen]
            seen.update(new)
            waiting += new


def nodes_behind(roots: Collection[Any], most: int) -> Iterator[Any]:
    """The nodes of a graph from its end, each once, and no more than so many."""
    seen, queue = set(roots), list(roots)
    for node in queue:  # grows meanwhile
        yield node
        for one in following(node):
            if one not in seen and len(seen) < most:
                seen.add(one)
                queue.append(one)


def latest_number(given: Any) -> int | None:
    """The number of the node that was made last of those that made a tensor, or a list of them, as torch counts the
    nodes of a thread; None where that is not known."""
    nodes = [getattr(one, "grad_fn", None) for one in (given if type(given) in (list, tuple) else [given])]
    return max([one._sequence_nr() for one in nodes if one is not None and hasattr(one, "_sequence_nr")], default=None)


def reaches_back(tensors: Collection[Any], number: int, most: int) -> bool:
    """Whether the graph behind tensors may hold a node that is no newer than this number; it is read no further than so
    many nodes, and what lies behind those is not known."""
    roots = [one.grad_fn for one in tensors if one.grad_fn is not None]
    looked = 0
    for node in nodes_behind(roots, most):
        looked += 1
        if not hasattr(node, "variable") and (not hasattr(node, "_sequence_nr") or node._sequence_nr() <= number):
            return True
    return looked >= most


def levels(node: Any, most: int) -> Iterator[list[Any]]:
    """The operations that lie one behind a node, those that lie two behind it, and so on."""
    level = [node]
    for _ in range(most):
        level = [behind for one in level for behind in following(one)]
        yield level


def graph_behind(root: Any, kinds: Collection[str]) -> tuple[list[Any], set[int]]:
    """The nodes of a graph, MAX_WALKED or a few more, those nearest to the root first, and the ids of those that are
    reached through a node of these kinds."""
    order, known, behind = [root], {id(root)}, set[int]()
    for node in order:
        if len(order) >= MAX_WALKED:
            break
        through = id(node) in behind or saved_values.kind(node) in kinds
        for one in following(node):
            if through:
                behind.add(id(one))
            if id(one) not in known:
                known.add(id(one))
                order.append(one)
    return order, behind


class Graph:
    """The operations behind a tensor, as far as they were found within MAX_NODES."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.nodes: dict[Any, str] = {}  # kinds by node, the root first
        self.edges: list[tuple[Any, Any, int]] = []  # a node, one whose output it uses, and the number of that output
        waiting = [root]
        self.nodes[root] = kind_of(root)
        while waiting and len(self.nodes) <= MAX_NODES:
            node = waiting.pop()
            for used, output in node.next_functions:
                if used is None:
                    continue
                self.edges.append((node, used, output))
                if used not in self.nodes:
                    self.nodes[used] = kind_of(used)
                    waiting.append(used)
        self.whole = not waiting

    @functools.cached_property
    def users(self) -> dict[Any, list[Any]]:
        """For each operation, those that use its output, once for each use."""
        users: dict[Any, list[Any]] = {}
        for user, used, _ in self.edges:
            users.setdefault(used, []).append(user)
        return users

    def of_kind(self, *kinds: str) -> list[Any]:
        return [node for node, kind in self.nodes.items() if kind in kinds]


def kind_of(node: Any) -> str:
    """ "Softmax", "Slice along last"."""
    kind = saved_values.kind(node)
    if kind not in ALONG_LAST:
        return kind
    made, given = _shape(node, 0), getattr(node, "_saved_self_sym_sizes", ())
    if kind == "Cat" and made and any(_shape(one, output) == made for one, output in node.next_functions):
        return "Alias"  # All other parts are empty, so nothing is cut or joined.
    dims = getattr(node, "_saved_dim", None)
    dims = dims if isinstance(dims, tuple) else (dims,)
    rank = len(made if made and kind != "Mean" else given)
    last = len(dims) == 1 and dims[0] is not None and saved_values.is_last(dims[0], rank)
    return f"{kind} along {'last' if last else 'another'}"


def _shape(node: Any, output: int) -> tuple[int, ...]:
    """The sizes of an output of an operation, which is an input of its backward."""
    return saved_values.sizes_of(node, output) or ()
