"""The ratio of the policy that is trained to the one that acted, as a loss weighs it: the exponential of a
log-probability that has a graph less one that has none; or a probability divided by one that has none, where the loss
limits it.

Masks count: what is multiplied by zero, or replaced, is padding, whose probabilities mean nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.graphs import COPIES, LIMITS, SQUEEZES, VIEWS
from tracelyze.collectors.tensors.policies.weights import THROUGH
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved, saved_several
from tracelyze.collectors.tensors.written_out import errors

MAX_NODES = 160  # operations of a walk
MAX_PARTS = 4  # of what is stacked or concatenated: the parts of a rollout are alike
MAX_VIEWS = 3
MAX_WAY = 600  # operations from the ratio to the nearest parameter
# Between the difference of the log-probabilities and its exponential: limits, means over a sequence, masks.
BEFORE = frozenset((
    *LIMITS, *VIEWS, *SQUEEZES, *COPIES, "Sum", "Mean", "Div", "Mul", "Expand", "MaskedFill", "Where", "NanToNum",
))  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """`values`: the ratio of each action. `weights`: what it is multiplied by on its way to the loss, advantages and
    masks; True or False where one says which elements are kept. `node`: the operation that made it, or the
    log-probability that it weighs, where it is `detached`."""

    values: Any
    weights: tuple[Any, ...]
    node: Any
    detached: bool = False


def ratio(torch: Any, root: Any) -> Ratio | None:
    """The ratio in a loss; None if there is none. Of several, and of several ways to one, that on which most constants
    are multiplied: a penalty on the distance to a reference is masked, but has no advantages."""
    found, most = None, 0
    for node, weights, constants in ways(torch, root, THROUGH, "Exp"):
        if (constants > most or found is None) and of_two_policies(node):
            values = saved(node, "result")
            if is_plain(torch, values) and values.numel() > 1 and values.is_floating_point():
                ours = tuple(one for one in weights if one.device == values.device)
                found, most = (Ratio(values, ours, node), constants) if ours else (found, most)
    return found or _divided(torch, root)


def _divided(torch: Any, root: Any) -> Ratio | None:
    """A ratio of two probabilities: only what limits it has saved it."""
    for kind in ("Clamp", "ClampMax", "ClampMin"):
        for node, weights, constants in ways(torch, root, THROUGH, kind):
            values = saved(node, "self") if constants else None
            before = node.next_functions[0][0]
            if values is None or before is None or not _is_quotient(torch, before, values):
                continue
            ours = tuple(one for one in weights if one.device == values.device)
            if ours and is_plain(torch, values) and values.numel() > 1 and values.is_floating_point():
                return Ratio(values, ours, node)
    return None


def _is_quotient(torch: Any, node: Any, values: Any) -> bool:
    """Whether the probability of a choice is divided by a constant of its own."""
    node = _behind_views(node)
    if saved_values.kind(node) != "Div" or len(node.next_functions) < 2 or node.next_functions[1][0] is not None:
        return False
    divisor, chosen = saved_values.saved_other(node), node.next_functions[0][0]
    if not isinstance(divisor, torch.Tensor) or divisor.numel() != values.numel() or chosen is None:
        return False
    chosen = _behind_views(chosen)
    kind, before = saved_values.kind(chosen), next(iter(chosen.next_functions), (None, 0))[0]
    picked = kind in ("Gather", "Index") and before is not None
    return kind == "Exp" or (picked and saved_values.kind(before) in ("Softmax", "Exp"))


def _behind_views(node: Any) -> Any:
    for _ in range(MAX_VIEWS):
        following = node.next_functions[0][0] if saved_values.kind(node) in errors.SHAPING else None
        if following is None:
            break
        node = following
    return node


def ways(torch: Any, root: Any, through: Collection[str], wanted: str) -> Iterator[tuple[Any, tuple[Any, ...], int]]:
    """The operations of a kind behind a loss, by ways that go through some kinds only. With each what its result is
    multiplied by on its way, and how many of these are constants. One that has several ways may come again."""
    waiting: list[tuple[Any, tuple[Any, ...], int]] = [(root, (), 0)]
    seen = {root}
    while waiting and len(seen) < MAX_NODES:
        node, weights, constants = waiting.pop(0)
        kind = saved_values.kind(node)
        if kind == wanted:
            yield node, weights, constants
        if kind not in through:
            continue
        parts = graphs.parts(node)[: MAX_PARTS if kind in ("Stack", "Cat") else None]
        for index, one in enumerate(parts):
            if one is None or (one in seen and saved_values.kind(one) != wanted):
                continue
            seen.add(one)
            more = _weights(torch, node, kind, index)
            constant = bool(more) and (kind != "Mul" or None in parts)
            waiting.append((one, (*weights, *more), constants + constant))


def facts(torch: Any, found: Ratio) -> list[Any]:
    """How far the ratios that count are from 1, in the mean, each by 1 at most: few outliers are not to decide. Whether
    a weight has both signs, as advantages have: masks have not. The largest ratio."""
    with torch.no_grad():
        values = found.values.detach().float()
        counts = torch.ones_like(values, dtype=torch.bool)
        signed = torch.zeros((), dtype=torch.bool, device=values.device)
        for one in found.weights:
            given = one.detach()
            if fits(given.shape, values.shape):
                counts = counts & (given != 0)
            if given.is_floating_point():
                signed = signed | ((given > 0).any() & (given < 0).any())
        away = (values - 1).abs().clamp(max=1) * counts
        return [away.sum() / counts.sum().clamp(min=1), signed.float(), (values * counts).amax()]


def nearest_parameters(found: Ratio) -> Iterator[Any]:
    """Parameters of the policy, those nearest behind the ratio first: one of a deviation need not be in a module."""
    for node, kind in graphs.walk(found.node, MAX_WAY):
        if kind == graphs.LEAF:
            yield node.variable


def of_two_policies(node: Any) -> bool:
    """Whether this exponential is one of a difference whose second term alone is a constant."""
    for _ in range(len(BEFORE)):
        node = next(iter(graphs.following(node)), None)
        if node is None:
            return False
        kind = saved_values.kind(node)
        if kind == "Sub":
            first, second = graphs.parts(node)
            return first is not None and second is None
        if kind not in BEFORE:
            return False
    return False


def _weights(torch: Any, node: Any, kind: str, index: int) -> tuple[Any, ...]:
    """What an operation multiplies one of its inputs by, or which of its elements it keeps."""
    found: Any = None
    if kind == "Mul":
        found = saved(node, "self" if index else "other")
    elif kind == "Where":
        found = saved(node, "condition")
        found = found if found is None or not index else ~found
    elif kind == "MaskedFill":
        found = saved(node, "mask")
        found = None if found is None else ~found
    elif kind == "MaskedSelect":
        found = saved(node, "mask")
    elif kind == "Index":
        chosen = saved_several(node, "indices")
        found = chosen[0] if len(chosen) == 1 and chosen[0] is not None and chosen[0].dtype is torch.bool else None
    return (found,) if is_plain(torch, found) and found.numel() > 1 else ()


def fits(shape: Any, other: Any) -> bool:
    """Whether a tensor of one shape is spread over one of the other as it is."""
    return len(shape) <= len(other) and all(
        one in (1, two) for one, two in zip(reversed(shape), reversed(other), strict=False)
    )
