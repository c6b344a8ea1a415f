"""A sigmoid of a sigmoid, or a softmax of a softmax, under the logarithm of a loss: read off the graph behind it.

What a second sigmoid answers lies between 0.5 and 0.73. The graph of the loss shows it, whoever wrote either one:
the model's last layer, the loss function, or the formula of the loss in the script. A logarithm of a softmax under
another softmax is none: softmax(log_softmax(x)) is softmax(x).
"""

from __future__ import annotations

from typing import Any, Final

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.graphs import COPIES, LIMITS, SQUEEZES, TURNS, VIEWS

MAX_NODES: Final = 60
WALK_DEPTH: Final = 12
HANDING_ON: Final = frozenset((
    *VIEWS, *TURNS, *SQUEEZES, *COPIES, *LIMITS, "Expand", "Slice", "Select", "Index", "IndexSelect", "MaskedSelect",
    "Gather",
))  # fmt: skip
"""Operations that hand probabilities on as they are, moved, chosen from, or kept from 0 and 1."""
PROBABILITIES: Final = ("Sigmoid", "Softmax")
LOGARITHMS: Final = ("LogSigmoid", "LogSoftmax", "Logsumexp")  # which contain a sigmoid or a softmax
BETWEEN: Final = HANDING_ON | {"Mean", "Sum", "Neg", "Add", "Sub", "Mul", "Div", "Where", "MaskedFill", "Rsub"}
GUARDING: Final = HANDING_ON | {"Add", "Sub", "Rsub"}  # log(p + 1e-8), log(1 - p)
SOFT: Final = ("Log1P", "Exp", "Neg", "Abs")  # log(1 + exp(-|x|)), as the logits' formula has it


def made_from(node: Any) -> str:
    """What made the scores of a squashing operation, the one behind `node` that makes a loss's input: "Sigmoid",
    "Softmax"; empty where it is nothing of the kind."""
    first = _through(node, GUARDING | {"Log"})
    if first is None or saved_values.kind(first) not in (*PROBABILITIES, *LOGARITHMS):
        return ""
    return _scores_of(first)


def under_logarithm(root: Any) -> tuple[str, str, tuple[int, ...]] | None:
    """The operation of a loss that is written out which squashes once more, what made its scores, and their sizes.

    None where the loss has no such operation, or another one beside it is given scores.
    """
    found = []
    for node, kind in graphs.walk(root, MAX_NODES, BETWEEN):
        squashing = node if kind in LOGARITHMS else _soft(node) if kind == "Log1P" else None
        if kind == "Log":
            squashing = _through(node, GUARDING | {"Log"})
            squashing = squashing if squashing is not None and saved_values.kind(squashing) in PROBABILITIES else None
        if squashing is not None:
            made = _scores_of(squashing)
            if not made:
                return None
            sizes = saved_values.sizes_of(squashing) or ()
            found.append((saved_values.kind(squashing) if kind != "Log1P" else "LogSigmoid", made, sizes))
    return found[0] if found else None


def _scores_of(node: Any) -> str:
    """What made the scores that a squashing operation was given."""
    following = graphs.only_following(node)
    earlier = None if following is None else _through(following, HANDING_ON)
    kind = "" if earlier is None else saved_values.kind(earlier)
    return kind if kind in PROBABILITIES else ""


def _soft(node: Any) -> Any:
    """The node whose scores log(1 + exp(-|x|)) is taken of: that of the absolute value; None if it is another one."""
    for expected in SOFT:
        if saved_values.kind(node) != expected:
            return None
        if expected == SOFT[-1]:
            return node
        node = graphs.only_following(node)
        if node is None:
            return None
    return None


def _through(node: Any, passing: frozenset[str]) -> Any:
    """The first operation, from `node` on, that is none of those; None where several tensors meet, or none is left."""
    for _ in range(WALK_DEPTH):
        if saved_values.kind(node) not in passing:
            return node
        node = graphs.only_following(node)
        if node is None:
            return None
    return None
