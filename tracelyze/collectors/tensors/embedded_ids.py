"""Sequences of ids that a loss goes back to, read from the autograd graph of its scores.

What a model looked up in its embeddings is what it really saw, whoever shifted it where. Compared with the targets of
the same positions, it shows whether a target is the id that the model was given there, and whether padding counts in
the loss.
"""

from __future__ import annotations

import math
from typing import Any

from tracelyze.collectors.tensors import graphs, rows_of_ids
from tracelyze.collectors.tensors.attention import next_seen
from tracelyze.collectors.tensors.graphs import COPIES, LEAF, SQUEEZES, TURNS, VIEWS, Graph, kind_of
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved
from tracelyze.collectors.tensors.targets.sequences import Sequences, Targets

ROWS, COLUMNS = 64, 4096  # of a batch of sequences that are compared
ONLY = 0.99  # share of the places of an id that lie at the ends of rows: one that is used elsewhere is no padding
TIE = 1e-6  # less than one of the ids that are compared
HIGHEST = 2**31 - 1  # above any id
MOST_WEIGHTS, FEW_WEIGHTS = 2**22, 4  # elements of attention that are all read; of more, those of a few samples
LINEAR, ATTENTION, RECURRENT = ("Mm", "Addmm", "Bmm", "Baddbmm"), ("Softmax", "SafeSoftmax"), ("RnnLayer", "Rnn")
PRODUCTS = ("Bmm", "Baddbmm")  # of two tensors that may both be made of the ids
# Operations that leave every value at its position, on the way from an embedding to the scores.
IN_PLACE = frozenset((
    *VIEWS, *TURNS, *SQUEEZES, *COPIES, "Expand", "Add", "Sub", "Mul", "Div", "Neg", "Relu", "Gelu", "Silu", "Tanh",
    "Sigmoid", "NativeDropout", "NativeLayerNorm", "FusedRmsNorm", "Pow", "Rsqrt", "Sqrt", "Mean along last",
    "LogSoftmax", "_DDPSink", "Embedding", LEAF,
))  # fmt: skip
# What else stands within attention, and between the steps of a recurrent layer that is unrolled.
IN_ATTENTION = frozenset(
    (
        "Split along last",
        "SplitWithSizes along last",
        "Slice along last",
        "Cat along last",
        "Unbind",
        "Select",
        "Stack",
        "MaskedFill",
        "Where",
        "Cos",
        "Sin",
    )
)
UNROLLED = frozenset(("UnsafeSplit", "Unbind", "Stack"))
OF_MEMORY = frozenset(("MaskedFill", "Where", "Cat along last"))  # where a recurrent decoder attends to its encoder


def columns(torch: Any, given: Any, targets: Targets) -> dict[str, Any]:
    """Columns of a row of loss_calls, as tensors without dimensions: scores `given` with the classes in dimension 1."""
    classes = given.shape[1]
    if given.numel() != targets.classes.numel() * classes:
        return {}
    return behind(torch, given.grad_fn, classes, targets)


def behind(torch: Any, root: Any, classes: int, targets: Targets) -> dict[str, Any]:
    """The columns for scores of so many classes that a node of the graph made."""
    graph = Graph(root)
    if not graph.whole:
        return {}
    placed = [(node, found) for node in graph.of_kind("Embedding") if (found := _placed(torch, node, targets))]
    parts = [(node, sequences.first(ROWS, COLUMNS)) for node, sequences in placed]
    rows = [_beside(torch, graph, node, classes, part) for node, part in parts]
    attending = _attending(graph)
    texts = [rows_of_ids.columns(torch, attending, part) for _, part in parts]
    ways = [way for place in placed for way in next_seen.columns(torch, graph, *place, IN_PLACE)]
    of_ids = _best(torch, rows, "ids_equal") | _best(torch, rows, "pad_share", first="pad_same")
    return of_ids | rows_of_ids.best(torch, texts) | next_seen.best(torch, ways)


def _placed(torch: Any, embedding: Any, targets: Targets) -> Sequences | None:
    """The ids of an embedding and the target at each of them, if they are sequences with one target for every id. Where
    the script has left out the last scores of each row and the first labels, the last id has no target."""
    ids, target = saved(embedding, "indices"), targets.classes
    if ids is None or ids.dim() != 2 or ids.shape[1] < 2:
        return None
    if not is_plain(torch, ids) or ids.device != target.device:
        return None
    samples, length = ids.shape
    beside = target.detach()
    if target.shape in ((samples, length - 1), (samples * (length - 1),)):
        beside = torch.nn.functional.pad(beside.reshape(samples, length - 1), (0, 1), value=targets.ignored)
    elif target.shape not in (ids.shape, (ids.numel(),)):
        return None
    return Sequences(ids.detach(), beside.reshape(ids.shape), targets.ignored, targets.weight)


def _beside(torch: Any, graph: Graph, embedding: Any, classes: int, sequences: Sequences) -> dict[str, Any]:
    """The columns of one embedding: its ids compared with the targets at the same positions."""
    found, ids = _compared(sequences), sequences.ids
    later = sees_later(torch, graph, embedding, classes, ids.device)
    found["sees_later"] = torch.full((), math.nan, device=ids.device) if later is None else later
    ways = [padding(torch, sequences)]
    if ids.shape[0] > 1:
        ways.append(padding(torch, sequences.turned()))
    return found | _best(torch, ways, "pad_share", first="pad_same")


def _best(torch: Any, rows: list[dict[str, Any]], name: str, first: str = "") -> dict[str, Any]:
    """The row whose column `name` is largest, chosen where the values are, among those whose share `first` is nearly
    all, if there are any. All columns of the kind of `name` are kept."""
    if len(rows) < 2:
        return rows[0] if rows else {}
    kind = name.partition("_")[0]
    # Of an encoder and a decoder that are given the same ids, those count that are known to be read from the left.
    even = [TIE * (row["sees_later"] == 0) if "sees_later" in row else 0 for row in rows]
    mine = [column for column in rows[0] if column.startswith(kind) or (kind == "ids" and column == "sees_later")]
    ranks = [row[name] + (row[first] >= ONLY if first else 0) + more for row, more in zip(rows, even, strict=True)]
    best = torch.stack(ranks).argmax().reshape(1)
    return {column: torch.stack([row[column].double() for row in rows]).gather(0, best)[0] for column in mine}


def _compared(sequences: Sequences) -> dict[str, Any]:
    """Targets beside the ids at their positions, where the next id is another one (in whichever order they are).

    The first positions do not count: running sums, parities and states equal their input there by definition.
    """
    ids, target, counts = sequences.ids, sequences.target, sequences.counts()
    last = max(1, ids.shape[0] - 1)
    informative = (ids[:, 1:] != ids[:, :-1])[:last] & counts[:last, :-1]
    if ids.shape[0] > 1:
        informative = informative & (ids[1:, :-1] != ids[:-1, :-1])
    informative[:, :1] = False
    if ids.shape[0] > 2:
        informative[:1] = False
    equal = (ids == target)[:last, :-1] & informative
    count = informative.sum()
    # The last target of a row may be an id that was cut off from the inputs.
    followed = informative[:, :-1] & counts[:last, 1:-1]
    ahead = (ids[:, 2:] == target[:, :-2])[:last] & followed if ids.shape[1] > 2 else equal[:, :0]
    share = ahead.sum() / followed.sum().clamp(min=1)
    return {"ids_compared": count, "ids_equal": equal.sum() / count.clamp(min=1), "ids_ahead": share}


def padding(torch: Any, sequences: Sequences) -> dict[str, Any]:
    """The ends of rows that are filled with one id and hold it nowhere else, but as the id that all rows of a decoder
    begin with, and what the targets are there."""
    ids, target, counted = sequences.ids, sequences.target, sequences.counts()
    filled = ids == ids[:, -1].mode().values
    tail = filled.flip(1).cumprod(1).flip(1)
    lengths = tail.sum(1)
    spread, ends = lengths.amax() - lengths.amin(), lengths.sum()
    counts = tail.bool() & counted
    # A row ends with padding, if it has any. Where the ids are those of another sequence (the source of a translation),
    # the end symbol of the targets may still stand beside the first of them.
    last = target[:, -1].masked_fill(~counts[:, -1], -1).mode().values
    value = torch.where(last >= 0, last, target.masked_fill(~counts, -1).amax())
    same, number = (counts & (target == value)).sum(), counts.sum()
    if (weight := sequences.weight) is not None:
        number = number * (weight.detach().index_select(0, value.clamp(0, len(weight) - 1).reshape(1))[0] != 0)
    # Rows of equal lengths or without anything else are no sequences that are filled up (a task with pauses, say), and
    # beside a single other id it is no padding either (segment A, segment B).
    within = filled.sum() - filled[:, 0].all() * ids.shape[0]
    padded = (spread > 0) & (lengths.amax() < ids.shape[1]) & (ends >= ONLY * within)
    padded = padded & (ids.masked_fill(filled, -1).amax() > ids.masked_fill(filled, HIGHEST).amin())
    return {
        "pad_share": padded * number / ids.numel(),
        "pad_rows": padded * (lengths > 1).sum() / ids.shape[0],
        "pad_target": value,
        "pad_same": same / number.clamp(min=1),
        "pad_elsewhere": ((target == value) & counted).sum() - same,
        **_before_padding(torch, ids, lengths, counted & (target == value)),
    }


def _before_padding(torch: Any, ids: Any, lengths: Any, found: Any) -> dict[str, Any]:
    """The id that every padded row has right before its padding, and has nowhere else, as an end symbol; and how many
    of the targets `found` stand at it: what a model is to say after the end symbol is padding already."""
    padded, last = (lengths > 0) & (lengths < ids.shape[1]), ids.shape[1] - 1
    at = (last - lengths).clamp(min=0).unsqueeze(1)
    before = ids.gather(1, at).squeeze(1)
    end = before.gather(0, padded.long().argmax().reshape(1))
    full = (lengths == 0) & (ids[:, last] == end)
    once = ((before == end) | ~padded).all() & ((ids == end).sum() == (padded | full).sum())
    begins = (found.gather(1, at).squeeze(1) & padded).sum()
    return {"pad_behind": torch.where(once & padded.any(), end[0], -1), "pad_begins": once * begins}


def sees_later(torch: Any, graph: Graph, embedding: Any, classes: int, device: Any) -> Any:
    """The largest weight that any position of the model gives to a later one, or leaves for its own: 0 if the scores of
    a position come from its own id and those before. None where the graph does not show it.

    What is made of other ids, as by the encoder of a decoder, carries none of these.
    """
    if not graph.whole or not _keeps_positions(graph, embedding, classes):
        return None
    users = graph.users
    made: set[Any] = set()
    for twin in _twins(graph, embedding):
        made |= _region(graph, twin, lambda node: users.get(node, ()), set())
    kinds = {graph.nodes[node] for node in made}
    recurrent = [node for node in made if graph.nodes[node].endswith(RECURRENT)]
    attending = [node for node in _attending(graph) if node in made]
    if any(_given_only(node, made) for node in made if graph.nodes[node] in PRODUCTS or node in attending):
        return None
    memory = [node for node in attending if _asks_another(graph, node, users, made)]
    attending = [node for node in attending if node not in memory]
    stacks = [node for node in made if graph.nodes[node] == "Stack" and len(node.next_functions) > 1]
    allowed = IN_PLACE | set(LINEAR) | {graph.nodes[node] for node in recurrent + attending + memory}
    if recurrent or not attending:
        if not kinds <= allowed | UNROLLED | (OF_MEMORY if memory else set()) or not (recurrent or stacks):
            return None
        final = any(edge[2] for edge in graph.edges if edge[1] in set(recurrent))
        both = any(getattr(node, "_saved_bidirectional", True) for node in recurrent)
        back = any(getattr(node, "_saved_reverse", False) for node in recurrent)
        state = any(one in made for node in recurrent for one, _ in node.next_functions[1:])
        if final or both or back or state or not all(_starts_alone(graph, node, made) for node in stacks):
            return None
        return torch.zeros((), device=device)
    if not kinds <= allowed | IN_ATTENTION:
        return None
    weights = [_later(torch, node, device) for node in attending]
    return None if any(one is None for one in weights) else torch.stack(weights).amax()


def _twins(graph: Graph, embedding: Any) -> list[Any]:
    """The lookups of the same ids: a model may embed them more than once."""
    ids = saved(embedding, "indices")
    given = [(node, saved(node, "indices")) for node in graph.of_kind("Embedding")]
    place = ids.data_ptr(), ids.shape, ids.stride()
    return [node for node, own in given if own is not None and (own.data_ptr(), own.shape, own.stride()) == place]


def _operands(node: Any) -> tuple[list[Any], list[Any]]:
    """What stays at the positions of the first factor of a product, or of the queries, and what they are set beside."""
    edges = graphs.parts(node)
    fused = kind_of(node).startswith("ScaledDotProduct")
    return (edges[:1], edges[1:3]) if fused else (edges[-2:-1], edges[-1:])


def _given_only(node: Any, made: set[Any]) -> bool:
    """Whether a product takes these positions as its second factor alone: as keys that another sequence asks for."""
    if kind_of(node) in ATTENTION:
        return False
    first, second = _operands(node)
    return any(one in made for one in second) and not any(one in made for one in first)


def _asks_another(graph: Graph, node: Any, users: dict[Any, list[Any]], made: set[Any]) -> bool:
    """Whether attention weighs the values of another sequence: none of them are made of these ids."""
    if kind_of(node) not in ATTENTION:
        return not any(one in made for one in _operands(node)[1])
    after = _region(graph, node, lambda one: users.get(one, ()), set(LINEAR))
    products = [one for one in after if graph.nodes[one] in PRODUCTS]
    return bool(products) and not any(value in made for one in products for value in _operands(one)[1])


def _attending(graph: Graph) -> list[Any]:
    """The operations that make the weights of attention, or use them."""
    fused = [node for node, kind in graph.nodes.items() if kind.startswith("ScaledDotProduct")]
    return fused + graph.of_kind(*ATTENTION)


def _keeps_positions(graph: Graph, embedding: Any, classes: int) -> bool:
    """Whether nothing is moved between the embedding and the first layer, nor between the last one and the scores."""
    users = graph.users
    mixing = {*LINEAR, *ATTENTION, *(kind for kind in graph.nodes.values() if kind.startswith("ScaledDot"))}
    mixing |= {kind for kind in graph.nodes.values() if kind.endswith(RECURRENT)} | {"Unbind"}
    up = _region(graph, embedding, lambda node: users.get(node, ()), mixing)
    down = _region(graph, graph.root, graphs.following, mixing)
    last = [node for node in down if graph.nodes[node] in LINEAR]
    wide = [size[-1] for node in last if (size := getattr(node, "_saved_mat2_sym_sizes", None))]
    plain = all(graph.nodes[node] in IN_PLACE or graph.nodes[node] in mixing for node in up | down)
    return plain and len(last) == 1 and wide == [classes]


def _region(graph: Graph, start: Any, following: Any, ends: set[str]) -> set[Any]:
    """What is reached from a node, up to and with the first operations of the kinds `ends`."""
    found, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        if graph.nodes[node] not in ends:
            fresh = {one for one in following(node) if one in graph.nodes} - found
            found |= fresh
            waiting += fresh
    return found


def _starts_alone(graph: Graph, stack: Any, made: set[Any]) -> bool:
    """Whether the first of the outputs that are stacked comes from the first input alone, of these ids.

    A state that is taken apart by layers is no input: there are as many of these as of the outputs.
    """
    waiting, seen, inputs = [stack.next_functions[0][0]], set(), set()
    while waiting:
        node = waiting.pop()
        if node not in made or node in seen:
            continue
        seen.add(node)
        kind = graph.nodes.get(node)
        if kind is None or kind in ("Stack", "Embedding"):
            return False
        for following, output in node.next_functions:
            if following in made and graph.nodes[following] == "Unbind":
                inputs.add((following, output))  # The state of an earlier step comes from another node.
            else:
                waiting.append(following)
    taken = [{output for _, used, output in graph.edges if used is one} for one, _ in inputs]
    return [output for _, output in inputs] == [0] and len(taken[0]) == len(stack.next_functions)


def _later(torch: Any, node: Any, device: Any) -> Any:
    """What attention gives to later positions; 1 where it keeps every position from its own. None: unknown."""
    if not kind_of(node).endswith("Softmax"):
        if getattr(node, "_saved_is_causal", False):
            return torch.zeros((), device=device)
        mask = saved(node, "attn_mask") if hasattr(node, "_saved_attn_mask") else None
        if mask is None:
            return None
        given = mask if mask.dtype is torch.bool else (mask > torch.finfo(mask.dtype).min / 2)
    else:
        result = saved(node, "result")
        if result is None:
            return None
        given = result
    if given.dim() < 2 or given.shape[-1] != given.shape[-2] or given.shape[-1] < 2:
        return None
    weights = given.detach().reshape(-1, *given.shape[-2:])
    read = weights if weights.numel() <= MOST_WEIGHTS else weights[:FEW_WEIGHTS]
    seen = read > 0
    # A position that no row attends to is padding in all of them, and says nothing of its own.
    own = seen.diagonal(dim1=1, dim2=2).any(0) | ~seen.any(1).any(0)
    first = weights[:FEW_WEIGHTS].float()
    # Libraries let padding that may see nothing see everything, lest its softmax be NaN.
    everything = (first > 0).all(2)
    padding = everything & ~everything.all(1, keepdim=True)
    later = first.triu(1).masked_fill(padding[:, :, None], 0.0).amax()
    return torch.where(own.all(), later, torch.ones((), device=device))
