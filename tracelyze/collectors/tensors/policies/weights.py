"""The constants by which the terms of a policy's loss are multiplied: its advantages, as they stand in the graph.

A policy's loss is a mean of log-probabilities or of their ratios, each times a constant. The walk begins at the loss
and goes through sums, means, clips and choices only, so that it stays short whatever the model is.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.graphs import COPIES, LIMITS, SQUEEZES, VIEWS
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved

MAX_VISITED, MAX_BEHIND = 96, 48  # operations
THROUGH = frozenset((
    "Neg", "Mean", "Sum", "Div", "Mul", "Add", "Sub", "Minimum", "Maximum", *LIMITS, *VIEWS, *SQUEEZES, *COPIES,
    "Expand", "Select", "Slice", "Index", "Where", "MaskedFill", "MaskedSelect", "Stack", "Cat", "Min", "Max",
))  # fmt: skip
CHOSEN = ("Gather", "NllLoss", "NllLoss2D", "Exp")  # an action's log-probability, or the ratio of two
FEW = 4  # terms that a loop over the samples adds up, each with a number of its own: fewer weigh parts of a loss
PARTS = 2  # of what is stacked or concatenated: they are alike
COLUMNS = ("weights", "weights_zero", "weights_negative", "weights_largest", "weights_repeated")


def columns(torch: Any, root: Any) -> dict[str, Any]:
    """How many such constants there are behind a loss, the share of zeros, of negative ones, and of those that repeat
    the one before, and how large they are at most, where they are."""
    found = [one for one in _constants(root) if is_plain(torch, one) and one.is_floating_point()]
    if not found or len({one.device for one in found}) > 1:
        return {}
    with torch.no_grad():
        facts = [_facts(torch, one.detach()) for one in found]
        used = torch.stack([fact[0] for fact in facts])  # masks are no weights
        count = (used * torch.tensor([float(one.numel()) for one in found], device=used.device)).sum()
        zero, negative = (torch.stack([fact[index] for fact in facts]) * used for index in (1, 2))
        return {
            "weights": count,
            "weights_zero": zero.sum() / count.clamp(min=1),
            "weights_negative": negative.sum() / count.clamp(min=1),
            "weights_largest": torch.stack([fact[3] * fact[0] for fact in facts]).amax(),
            "weights_repeated": _repeated(torch, found),
        }


def _facts(torch: Any, values: Any) -> tuple[Any, ...]:
    """Whether these are weights, with their zeros and negative ones, and the largest. Zeros and ones are a mask."""
    zeros = (values == 0).sum().double()
    ones = (values == 1).sum()
    mask = (zeros + ones == values.numel()) & (ones > 0)
    return (~mask).double(), zeros, (values < 0).sum().double(), values.abs().amax().double()


def _repeated(torch: Any, found: list[Any]) -> Any:
    """The share of samples, without the first, that have the same weights as the sample before."""
    samples = max(found, key=lambda one: one.numel()).detach()
    if samples.numel() == 1:  # a number for each sample
        samples = torch.stack([one.detach().reshape(()) for one in found])
    rows = samples if samples.shape[0] > 1 else samples.reshape(-1)
    return (rows[1:] == rows[:-1]).double().mean()


def _constants(root: Any) -> list[Any]:
    """Tensors with several elements that something with an action's probability behind it is multiplied by; numbers,
    where a loop over the samples multiplies each by its own."""
    found: list[Any] = []
    numbers: list[Any] = []
    seen, waiting = {root}, [root]
    while waiting and len(seen) < MAX_VISITED:
        node = waiting.pop(0)
        kind = saved_values.kind(node)
        if kind not in THROUGH:
            continue
        following = graphs.parts(node)
        if kind == "Mul" and len(following) == 2 and (following[0] is None) != (following[1] is None):
            constant = saved(node, "other" if following[1] is None else "self")
            behind = following[0] or following[1]
            if constant is not None and constant.numel() > 1 and _chooses(behind):
                found.append(constant)
            elif constant is not None and constant.numel() == 1 and _picks(behind):
                numbers.append(constant)
        for one in following:
            if one is not None and one not in seen:
                seen.add(one)
                waiting.append(one)
    return found + (numbers if len(numbers) >= FEW else [])


def _picks(node: Any) -> bool:
    """Whether this is one of the probabilities of something chosen."""
    while node is not None and saved_values.kind(node) in ("Neg", "Squeeze", "View"):
        node = node.next_functions[0][0]
    return node is not None and saved_values.kind(node) in ("Select", "Unbind") and _chooses(node)


def _chooses(node: Any) -> bool:
    """Whether the probability of something chosen stands close behind."""
    seen, waiting = {node}, [node]
    while waiting and len(seen) < MAX_BEHIND:
        one = waiting.pop(0)
        if saved_values.kind(one) in CHOSEN:
            return True
        for following in graphs.parts(one)[: PARTS if saved_values.kind(one) in ("Stack", "Cat") else None]:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False
