"""How widely a policy of continuous actions draws: the standard deviation of the normal law behind log-probabilities
that its loss weighs.

The walk begins at a product with a constant, and goes through sums, means, ratios and limits up to what the law is made
of: a square of distances, and a logarithm of the deviation or a quotient by it. The deviation is read off what these
have saved.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.policies import ratios
from tracelyze.collectors.tensors.policies.weights import THROUGH
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved, saved_other

MAX_BEHIND = 64  # operations between a weight and the law
MAX_TRIED = 6  # products with a constant
MAX_ELEMENTS = 2**16
PASSED = THROUGH | {"Exp", "Permute", "Transpose", "T"}
SOLVES = "LinalgSolveTriangular"  # of the law of several dimensions


def deviation(torch: Any, root: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The standard deviations, and the constants that the log-probabilities are multiplied by, where they are most.
    None without a normal law whose deviation is trained."""
    found: tuple[Any, tuple[Any, ...]] | None = None
    for chosen, weights in itertools.islice(products(torch, root), MAX_TRIED):
        law = of_law(torch, chosen) if found is None or len(weights) > len(found[1]) else None
        if law is not None and law.device == weights[-1].device:
            found = law, weights
    return found


def products(torch: Any, root: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """What a loss multiplies by a constant of several elements, each with all that it is multiplied by on its way."""
    for node, before, _ in ratios.ways(torch, root, THROUGH, "Mul"):
        parts = graphs.parts(node)
        if len(parts) == 2 and (parts[0] is None) != (parts[1] is None):
            constant = saved(node, "other" if parts[1] is None else "self")
            if is_plain(torch, constant) and constant.numel() > 1 and constant.is_floating_point():
                yield parts[0] or parts[1], (*[one for one in before if one.device == constant.device], constant)


def of_law(torch: Any, chosen: Any) -> Any:
    """The deviations of the normal law that made a log-probability; None where it is of another law."""
    behind = [node for node, _ in graphs.walk(chosen, MAX_BEHIND, PASSED)]
    squares = [node for node in behind if _is_square(node) or saved_values.kind(node) == SOLVES]
    if not squares:
        return None
    logarithms = (saved(node, "self") for node in behind if saved_values.kind(node) == "Log")
    quotients = (_divisor(node) for node in squares)
    variances = (saved_other(node) for node in behind if _divides_square(node))
    for one in logarithms:
        if _is_deviation(torch, one):
            return one.detach()
    for one in quotients:
        if _is_deviation(torch, one):
            return one.detach()
    for one in variances:
        if _is_deviation(torch, one):
            with torch.no_grad():
                return (one.detach() / 2).sqrt()
    return None


def facts(torch: Any, found: Any, weights: tuple[Any, ...]) -> list[Any]:
    """The geometric mean of the deviations, and whether the weights have both signs, as advantages have."""
    with torch.no_grad():
        both = torch.zeros((), dtype=torch.bool, device=found.device)
        for one in weights:
            both = both | ((one > 0).any() & (one < 0).any())
        flat = found.reshape(-1)
        flat = flat[:: max(1, flat.numel() // MAX_ELEMENTS)].double()
        return [flat.clamp(min=1e-30).log().mean().exp().float(), both.float()]


def _is_square(node: Any) -> bool:
    kind, parts = saved_values.kind(node), graphs.parts(node)
    if kind == "Pow":
        return bool(getattr(node, "_saved_exponent", None) == 2)
    return kind == "Mul" and len(parts) == 2 and parts[0] is not None and parts[0] is parts[1]


def _divisor(square: Any) -> Any:
    """What a distance is divided by before it is squared: no constant."""
    before = square.next_functions[0][0]
    divided = before is not None and saved_values.kind(before) == "Div" and before.next_functions[-1][0] is not None
    return saved_other(before) if divided else None


def _divides_square(node: Any) -> bool:
    """Whether this divides a square by what is trained."""
    if saved_values.kind(node) != "Div" or len(node.next_functions) < 2 or node.next_functions[1][0] is None:
        return False
    above = node.next_functions[0][0]
    while above is not None and saved_values.kind(above) in ("Neg", "Mul") and not _is_square(above):
        above = next(iter(graphs.following(above)), None)
    return above is not None and _is_square(above)


def _is_deviation(torch: Any, values: Any) -> bool:
    return bool(is_plain(torch, values) and values.is_floating_point() and values.numel() > 0)
