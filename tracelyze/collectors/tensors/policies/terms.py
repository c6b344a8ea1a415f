"""What a policy's loss does beside weighing log-probabilities: with which sign the policy's entropy stands in it, and
whether the advantages are part of the graph, so that the policy's gradient trains the value function, too.

As with the weights of a policy (weights.py), the walk begins at the loss and goes through sums, means, clips and
choices only. An entropy is recognised by its values: a product of probabilities with their own logarithms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.graphs import COPIES, SQUEEZES, VIEWS
from tracelyze.collectors.tensors.policies.weights import THROUGH
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved

MAX_NODES = 160  # operations of a walk
MAX_PARTS = 4  # of what is stacked or concatenated: the steps of a rollout are alike
MAX_PRODUCTS = 6
MAX_ELEMENTS = 2**20  # of probabilities that are looked at
NEAR = 1e-3  # between a probability and the exponential of its logarithm: both may be of low precision
ROUNDING = 2e-6  # of a ratio of probabilities that are the same, as two kernels compute them
SQUARES = ("Pow", "MseLoss", "SmoothL1Loss", "HuberLoss")
# What lies between the head of a value function and an advantage: differences, discounts, normalisation.
AFFINE = frozenset((
    "Neg", "Mean", "Sum", "Std", "Var", "Div", "Mul", "Add", "Sub", *VIEWS, *SQUEEZES, *COPIES, "Expand", "Select",
    "Slice", "Index", "Stack", "Cat", "T", "Transpose", "Unbind", "Where",
))  # fmt: skip
LIKELIHOOD = AFFINE | THROUGH | {"Gather", "NllLoss", "LogSoftmax", "Softmax", "Logsumexp", "Exp", "Log", "Pow"}
LOGARITHMS = ("LogSoftmax", "Logsumexp", "Log")
HEADS = ("Addmm", "Mm", "Mv", "Bmm", "Linear")


@dataclass
class Terms:
    """`weights`: what log-probabilities of choices are multiplied by. `ratios`: what stands there instead of them, the
    exponentials of their distance from constants. `products`: two factors that may be probabilities
    and their logarithms, with what the loss multiplies them by. `undetached`: whether such a weight passes gradients on
    to a value that a squared error of this loss trains."""

    weights: list[Any] = field(default_factory=list)
    ratios: list[Any] = field(default_factory=list)
    products: list[tuple[Any, Any, list[Any]]] = field(default_factory=list)
    undetached: bool = False


def terms(torch: Any, root: Any) -> Terms:
    """The terms of a loss, read off its graph."""
    found = Terms()
    weighed: list[tuple[set[Any], set[Any]]] = []  # what a weight is made of, and the log-probability that it weighs
    squared: set[Any] = set()
    for node, factors in _walk(root):
        kind, parts = saved_values.kind(node), graphs.parts(node)
        if kind in SQUARES or (kind == "Mul" and parts[0] is parts[-1]):
            squared |= _behind(node, AFFINE | {kind}, HEADS)
            continue
        if kind != "Mul":
            continue
        given = saved(node, "self"), saved(node, "other")
        if len(found.products) < MAX_PRODUCTS and all(is_plain(torch, one) for one in given) and _rows(*given):
            found.products.append((*given, factors))
        for chosen, weight, values in zip(parts, parts[::-1], given[::-1], strict=True):
            several = is_plain(torch, values) and values.numel() > 1
            if not several or chosen is None or not is_log_probability(chosen):
                continue
            found.weights.append(values)
            found.ratios += _ratios(torch, chosen) if not found.ratios else []
            if weight is not None:
                weighed.append((_behind(weight, AFFINE, HEADS), _behind(chosen, LIKELIHOOD, HEADS)))
    found.undetached = any(weight & squared and not weight & own for weight, own in weighed)
    return found


def entropy(torch: Any, first: Any, second: Any, factors: list[Any]) -> list[Any]:
    """Whether a product is one of probabilities with their logarithms (1 or 0), the mean entropy, that of equal odds,
    and whether the loss punishes entropy (1), rewards it (-1) or leaves that open (0)."""
    with torch.no_grad():
        first, second = (_some_rows(one.detach()).float() for one in (first, second))
        is_one = torch.zeros((), dtype=torch.bool, device=first.device)
        for odds, logs in ((first, second), (second, first)):
            is_one |= ((odds.sum(-1) - 1).abs().amax() < NEAR) & ((logs.exp() - odds).abs().amax() < NEAR)
        sign = -torch.ones((), device=first.device)  # of the entropy: the sum of the products is its negative
        for factor in factors:
            sign = sign * _sign(torch, factor)
        most = torch.full((), float(first.shape[-1]), device=first.device).log()
        return [is_one.float(), -(first * second).sum(-1).mean(), most, sign]


def all_ones(torch: Any, found: Terms) -> Any:
    """Whether all ratios of a policy's loss are 1, but for rounding."""
    if not found.ratios:
        return torch.zeros((), device=found.weights[0].device)
    with torch.no_grad():
        return ((found.ratios[0].detach() - 1).abs().amax() <= ROUNDING).float()


def _ratios(torch: Any, chosen: Any) -> list[Any]:
    """The ratios behind a factor: exponentials of a difference to a constant."""
    found = []
    for node in _behind(chosen, THROUGH, ("Exp",)):
        before = node.next_functions[0][0]
        constant = before is not None and saved_values.kind(before) == "Sub" and None in graphs.parts(before)
        result = saved(node, "result")
        if constant and is_plain(torch, result) and result.numel() > 1:
            found.append(result)
    return found


def both_signs(torch: Any, values: Any) -> Any:
    """Whether positive and negative ones are among them, as among advantages: weights of samples have one sign."""
    return 1 - abs(_sign(torch, values))


def _sign(torch: Any, factor: Any) -> Any:
    """1 or -1; 0 of what has both signs, or is not known."""
    if factor is None or isinstance(factor, (int, float)):
        return float((factor or 0) > 0) - float((factor or 0) < 0)
    if factor.numel() == 1 and factor.is_cpu:
        return _sign(torch, float(factor.detach()))
    low, high = factor.detach().amin(), factor.detach().amax()
    return ((low >= 0) & (high > 0)).float() - ((high <= 0) & (low < 0)).float()


def _walk(root: Any) -> Iterator[tuple[Any, list[Any]]]:
    """The operations behind a loss, each with what its result is multiplied by on its way there."""
    waiting: list[tuple[Any, list[Any]]] = [(root, [])]
    seen = {root}
    while waiting and len(seen) < MAX_NODES:
        node, factors = waiting.pop(0)
        yield node, factors
        kind = saved_values.kind(node)
        for index, one in enumerate(_following(node, kind) if kind in THROUGH else ()):
            if one is not None and one not in seen:
                seen.add(one)
                waiting.append((one, [*factors, _factor(node, kind, index)]))


def _factor(node: Any, kind: str, index: int) -> Any:
    """What an operation multiplies one of its inputs by, but for positive numbers; None where that is not known."""
    if kind == "Neg":
        return -1
    if kind in ("Add", "Sub"):
        alpha = getattr(node, "_saved_alpha", 1) if index else 1
        return -alpha if kind == "Sub" and index else alpha
    if kind == "Mul":
        return saved(node, "self" if index else "other")
    if kind == "Div":
        divisor = saved(node, "other")
        return None if index else (1 if divisor is None and node.next_functions[-1][0] is None else divisor)
    return 1


def _following(node: Any, kind: str) -> list[Any]:
    parts = graphs.parts(node)
    return parts[:MAX_PARTS] if kind in ("Stack", "Cat") else parts


def _behind(start: Any, through: Collection[str], wanted: Collection[str]) -> set[Any]:
    """The nearest operations of these kinds, by ways that go through some kinds only."""
    found, seen, waiting = set(), {start}, [start]
    while waiting and len(seen) < MAX_NODES:
        node = waiting.pop(0)
        kind = saved_values.kind(node)
        if kind in wanted:
            found.add(node)
        elif kind in through:
            new = [one for one in _following(node, kind) if one is not None and one not in seen]
            seen.update(new)
            waiting += new
    return found


def is_log_probability(start: Any) -> bool:
    """Whether it is the log-probability of something chosen, or a ratio of two: of classes, or of a normal law."""
    for node in _behind(start, (THROUGH - {"Index"}) | {"Exp"}, ("Gather", "NllLoss", "Pow", "Index")):
        kind = saved_values.kind(node)
        if kind == "NllLoss" or (kind in ("Gather", "Index") and _behind(node, (kind, "Sub"), LOGARITHMS)):
            return True
        if (
            kind == "Pow"
            and getattr(node, "_saved_exponent", None) == 2
            and _behind(start, THROUGH | {"Exp"}, ("Div",))
        ):
            return True
    return False


def _rows(first: Any, second: Any) -> bool:
    """Whether these may be the probabilities of several things, and their logarithms."""
    return bool(first.shape == second.shape and first.dim() > 1 and first.shape[-1] > 1 and first.is_floating_point())


def _some_rows(values: Any) -> Any:
    while values.dim() > 2:
        values = values[0]
    return values[: max(1, MAX_ELEMENTS // values.shape[-1])]
