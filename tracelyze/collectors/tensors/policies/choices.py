"""What a policy chooses from: how its odds are spread where its loss weighs the log-probabilities of choices.

The walk begins at the loss, and ends at the operation that made the log-probabilities. The odds are read off what that
has saved for its backward, so that nothing is computed but the entropy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.graphs import COPIES, SQUEEZES, VIEWS
from tracelyze.collectors.tensors.policies.weights import FEW, THROUGH
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved, signed

MAX_NODES, MAX_BEHIND = 160, 64  # operations of a walk from the loss, and of one to what was chosen and its odds
MAX_WEIGHED = 20  # factors behind which choices are looked for
MAX_PARTS = 16  # of what is stacked or concatenated, spread over all
MAX_ELEMENTS = 2**18  # of odds that are looked at
FACTORS = {"Mul": ("self", "other"), "Dot": ("self", "tensor")}  # what their operations saved
PASSING = frozenset((*VIEWS, *SQUEEZES, *COPIES, "Expand", "Select", "Slice", "Index", "Stack", "Cat", "Unbind"))
# Between the log-probability of one choice and a number that it alone is multiplied by.
OF_ONE = frozenset(("Neg", "Squeeze", "Unsqueeze", "View", "Exp", "Sub", "Clamp", "Log", "Select", "Unbind"))
OF_MANY = THROUGH | {"Exp", "Log", "Unbind"}
PICKS = ("Gather", "Index", "Select", "NllLoss", "BinaryCrossEntropyWithLogits")
LAWS = ("LogSoftmax", "Logsumexp", "Log", "Softmax")


@dataclass
class Choices:
    """`scores`: logarithms of odds, but for a constant, along the last dimension. `weights`: tensors that the
    log-probabilities of choices are multiplied by; `numbers`: what multiplies that of a single one."""

    scores: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)


def choices(torch: Any, root: Any) -> Choices | None:
    """What is chosen from, and by what the loss weighs it; None where it weighs no choices."""
    found, known, left = Choices(), set[Any](), MAX_WEIGHED
    waiting, seen = deque([root]), {root}
    while waiting and len(seen) < MAX_NODES:
        node = waiting.popleft()
        kind = saved_values.kind(node)
        for weight, chosen in _weighed(torch, node, kind) if left > 0 else ():
            left -= 1
            one = weight.numel() == 1
            laws = dict(_laws(torch, chosen, OF_ONE if one else OF_MANY))
            if laws:
                (found.numbers if one else found.weights).append(weight.detach())
                found.scores += [law for pick, law in laws.items() if pick not in known]
                known.update(laws)
        for following in _following(node, kind) if kind in THROUGH or kind == "Dot" else ():
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found if found.weights or len(found.numbers) == 1 or len(found.numbers) >= FEW else None


def facts(torch: Any, found: Choices) -> list[Any]:
    """The mean entropy in nats, and that of equal odds; whether weights have both signs, as advantages have, and other
    weights have not; the sign of the weight, where there is one choice alone. Empty where they lie on two devices."""
    width, device = found.scores[0].shape[-1], found.scores[0].device
    scores = [one for one in found.scores if one.shape[-1] == width]
    if any(one.device != device for one in (*scores, *found.weights)):
        return []
    with torch.no_grad():
        left = MAX_ELEMENTS // len(scores)
        rows = torch.cat([_some_rows(one.detach(), left).reshape(-1, width).float() for one in scores])
        entropy = torch.special.entr(rows.log_softmax(-1).exp()).sum(-1).mean()
        both = torch.zeros((), dtype=torch.bool, device=device)
        for one in found.weights:
            both = both | ((one > 0).any() & (one < 0).any())
        signs = [_sign(one) for one in found.numbers]
        both = both | (1.0 in signs and -1.0 in signs)
        single = signs[0] if len(signs) == 1 and not found.weights else 0.0
        most = torch.full((), float(width), device=device).log()
        return [entropy, most, both.float(), torch.full((), single, device=device)]


def _weighed(torch: Any, node: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """The factors of a product that are constants or have values at hand, each with what it multiplies."""
    parts = graphs.parts(node)
    if kind in FACTORS and len(parts) == 2:
        for name, other in zip(FACTORS[kind], parts[::-1], strict=True):
            weight = saved(node, name) if other is not None else None
            if weight is not None and is_plain(torch, weight) and weight.dtype is not torch.bool and weight.numel():
                yield weight, other


def _laws(torch: Any, start: Any, through: Collection[str]) -> Iterator[tuple[Any, Any]]:
    """The choices behind a factor, each with the logarithms of the odds that it was made by."""
    waiting, seen = deque([start]), {start}
    looked = 0
    while waiting and looked < MAX_BEHIND:
        node, looked = waiting.popleft(), looked + 1
        kind = saved_values.kind(node)
        law = _law(torch, node, kind) if kind in PICKS else None
        if law is not None:
            yield node, law
        elif kind in through:
            new = [one for one in _following(node, kind) if one is not None and one not in seen]
            seen.update(new)
            waiting += new


def _law(torch: Any, pick: Any, kind: str) -> Any:
    """The logarithms of the odds of a choice, of shape [..., what can be chosen]; None where they are not at hand."""
    if kind in ("NllLoss", "BinaryCrossEntropyWithLogits"):
        scores = saved(pick, "self")
        if scores is None or not is_plain(torch, scores) or pick._saved_reduction:
            return None
        with torch.no_grad():
            return scores if kind == "NllLoss" else torch.stack([scores.detach(), torch.zeros_like(scores)], -1)
    waiting, looked = deque([pick]), 0
    while waiting and looked < MAX_BEHIND:
        node, looked = waiting.popleft(), looked + 1
        kind = saved_values.kind(node)
        if kind in LAWS:
            return _scores(torch, node, kind)
        if node is pick or kind in PASSING or kind == "Sub":
            waiting += [one for one in _following(node, kind) if one is not None]
    return None


def _scores(torch: Any, node: Any, kind: str) -> Any:
    values = saved(node, "self" if kind in ("Logsumexp", "Log") else "result")
    if not is_plain(torch, values) or not values.dim() or values.shape[-1] < 2 or not values.numel():
        return None
    if kind != "Log":
        dims = node._saved_dim if kind == "Logsumexp" else (node._saved_dim,)
        if [signed(one) % values.dim() for one in dims] != [values.dim() - 1]:
            return None
    with torch.no_grad():
        return values.detach().log() if kind in ("Log", "Softmax") else values


def _following(node: Any, kind: str) -> list[Any]:
    parts = graphs.parts(node)
    return parts[:: -(-len(parts) // MAX_PARTS)] if kind in ("Stack", "Cat") else parts


def _some_rows(values: Any, most: int) -> Any:
    """Odds spread over all, of so many elements, or little more."""
    for dimension in range(values.dim() - 1):
        step = min(-(-values.numel() // most), values.shape[dimension])
        if step > 1:
            values = values[(slice(None),) * dimension + (slice(None, None, step),)]
    return values


def _sign(number: Any) -> float:
    """The sign of a number that lies in the host's memory; 0 for others."""
    value = float(number) if number.is_cpu else 0.0
    return float(value > 0) - float(value < 0)
