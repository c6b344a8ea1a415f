"""Two outputs that a loss sets against each other, both of them with a graph: of a student and its teacher, say.

`((student - teacher) ** 2).mean()` and `-(teacher.softmax(1) * student.log_softmax(1)).sum(1).mean()` call no loss
function. What is found here are the operations that made both sides; whose weights are behind them is asked elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tracelyze.collectors.tensors import graphs
from tracelyze.collectors.tensors.written_out.errors import ELEMENTWISE, MAX_NODES, SHAPING, Shape, kind_of, shape_of

ERRORS = ("Pow", "Abs", "Square", "LinalgVectorNorm", "Norm")
SCALED = ("Div", "Mul", "ToCopy", "Clone", "Clamp", "ClampMin", "Add", *SHAPING)  # between a softmax and where it meets
MAX_SCALED = 5


class Compared(NamedTuple):
    """The operations that made what is given and what it is compared with, and the shape of the latter. `either`: which
    of the two is the target is not seen here."""

    given: Any
    target: Any
    shape: Shape
    either: bool


def compared(root: Any) -> list[Compared]:
    """What is set against each other in a loss, in the first such place: a difference whose size is taken, or
    probabilities that weigh the logarithms of others."""
    for node, kind in graphs.walk(root, MAX_NODES, ELEMENTWISE):
        if kind not in ELEMENTWISE:
            continue
        parts = graphs.parts(node)
        inner: Any = parts[0] if kind in ERRORS or (kind == "Mul" and parts[0] is parts[-1]) else None
        if kind_of(inner) == "Sub" and None not in (both := graphs.parts(inner)):
            return [Compared(both[0], both[1], shape_of(inner, 0) or (), True)] if both[0] is not both[1] else []
        if kind == "Mul" and len(parts) == 2 and None not in parts:
            for odds, logs in (parts, parts[::-1]):
                if _made_by(odds) == "Softmax" and (found := _logarithms(logs)):
                    return [Compared(one, odds, shape_of(node, 0) or (), False) for one in found]
    return []


def _logarithms(node: Any) -> list[Any]:
    """The logarithms of probabilities that an operation made, or that it is the difference of."""
    parts = graphs.parts(node) if kind_of(node) == "Sub" else [node]
    return [one for one in parts if _made_by(one) in ("LogSoftmax", "Log")]


def _made_by(node: Any) -> str:
    """The operation behind factors and views."""
    for _ in range(MAX_SCALED):
        if kind_of(node) not in SCALED:
            break
        node = next(iter(graphs.following(node)), None)
    return kind_of(node)
