"""A loss that the script writes out by itself: the shapes that met in it, read from the graph behind the scalar.

`((prediction - target) ** 2).mean()` calls no loss function. But its graph knows the shape of what every operation put
out and of what came in, as far as that can be trained; and squares and products have saved their operands. Nothing is
computed but a difference of a few saved elements; and, where the values are asked for, the last linear layer again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.tensors import saved_values
from tracelyze.collectors.tensors.graphs import SQUEEZES, VIEWS

MAX_NODES = 40
SEEN = 6  # rows and columns of a table of differences that are compared
# What may stand between a scalar and the first operation that meets the target: element by element, or a reduction.
ELEMENTWISE = frozenset((
    "Mean", "Sum", "Nansum", "Pow", "Abs", "Sqrt", "Neg", "Exp", "Log", "Log1P", "Expm1", "Clamp", "ClampMin",
    "ClampMax", "Where", "Maximum", "Minimum", "Mul", "Div", "Add", "Sub", "Rsub", "Softplus", "Sigmoid", "LogSigmoid",
    "Tanh", "Relu", "ToCopy", "LinalgVectorNorm", "Norm", "Square",
))  # fmt: skip
MEETING = ("Sub", "Mul", "Div", "Add")
TARGET_MEETS = ("Sub", "Mul")
SHAPING = (*VIEWS, *SQUEEZES, "Alias")
SCALING = ("Mul", "Div", "Neg", "ToCopy")  # by a number: what is scaled is not saved there
KEEPING = ("Sigmoid", "Tanh", "Relu", "Softmax", "Exp")  # operations that save what they put out
MAX_VIEWS, MAX_SCALINGS, MAX_ELEMENTS = 4, 4, 2**22
Shape = tuple[int, ...]
Consumers = tuple[Any, ...]  # operations that a result goes into, the next one first


@dataclass(frozen=True)
class Meeting:
    """Where what is trained meets what is not: the shapes of both, and the operation."""

    operation: str
    given: Shape
    target: Shape
    node: Any = None  # the operation in the graph
    side: int = 0  # which of its inputs is trained
    consumer: Any = None  # the operation that its result goes into

    @property
    def crossed(self) -> bool:
        """Whether both are repeated along each other: [B, 1] and [B] become [B, B]."""
        own = sizes(self.given)
        return bool(own) and own == sizes(self.target) and len(self.given) != len(self.target)


def meeting(torch: Any, root: Any) -> Meeting | None:
    """The place in the graph of a loss where both sides are repeated, else the first where one side is no constant."""
    first: Meeting | None = None
    pending: list[tuple[Any, Consumers]] = [(root, ())]
    seen = 0
    while pending and seen < MAX_NODES:
        node, consumers = pending.pop(0)
        kind = kind_of(node)
        if kind not in ELEMENTWISE:
            continue
        seen += 1
        found = _of(torch, node, consumers, kind) if kind in MEETING else None
        if found is not None:
            if found.crossed:
                return found
            first = first or found
        pending += [(following, (node, *consumers)) for following, _ in node.next_functions if following is not None]
    return first


def sides(torch: Any, found: Meeting) -> tuple[Any, Any] | None:
    """Prediction and target of a difference that was squared, or whose size was taken: the difference is saved, and the
    prediction is saved too, or worked out again where a linear layer made it. None where either is not known."""
    if found.operation != "Sub" or kind_of(found.consumer) not in ("Pow", "Abs", "Mul", "Square"):
        return None
    difference: Any = saved_values.saved(found.consumer, "self")
    if not isinstance(difference, torch.Tensor) or tuple(difference.shape) != found.given:
        return None
    layer, _ = found.node.next_functions[found.side]
    for _ in range(MAX_VIEWS):
        if kind_of(layer) not in SHAPING:
            break
        layer = layer.next_functions[0][0]
    if kind_of(layer) in KEEPING:
        prediction: Any = saved_values.saved(layer, "result")
        if not isinstance(prediction, torch.Tensor) or prediction.shape.numel() != difference.shape.numel():
            return None
        return _both(prediction.detach().reshape(found.given), difference.detach(), found.side)
    if kind_of(layer) != "Addmm":
        return None
    data: Any = saved_values.saved(layer, "mat1")
    weight: Any = saved_values.saved(layer, "mat2")
    bias: Any = getattr(layer.next_functions[0][0], "variable", None)
    if not all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in (data, weight, bias)):
        return None
    if data.numel() > MAX_ELEMENTS or data.dtype != difference.dtype or data.dtype != weight.dtype:
        return None
    computed = torch.addmm(bias.detach(), data.detach(), weight.detach()).reshape(found.given)
    return _both(computed, difference.detach(), found.side)


def _both(prediction: Any, difference: Any, side: int) -> tuple[Any, Any]:
    """Prediction and target, from the prediction and the difference, of which the prediction is the input `side`."""
    return prediction, prediction - difference if side == 0 else prediction + difference


def sizes(shape: Shape) -> list[int]:
    """The sizes that are not 1."""
    return [size for size in shape if size > 1]


def _of(torch: Any, node: Any, consumers: Consumers, kind: str) -> Meeting | None:
    """The shapes at an operation with one side that is trained; None if both are, or if the other is a number."""
    sides = node.next_functions
    trained = [index for index, (following, _) in enumerate(sides) if following is not None]
    if kind not in TARGET_MEETS or len(sides) != 2 or len(trained) != 1:
        return None
    following, place = sides[trained[0]]
    given, out = shape_of(following, place), shape_of(node, 0)
    if out is None and consumers and kind_of(consumers[0]) in ("Pow", "Abs"):
        out = shape_of(consumers[0], 0)
    if given is None or kind_of(following) == "Unsqueeze":  # all pairs on purpose
        return None
    if kind == "Mul":
        other = saved_values.saved(node, "other" if trained[0] == 0 else "self")
        return Meeting(kind, given, tuple(other.shape)) if isinstance(other, torch.Tensor) and other.dim() else None
    if out is None:
        return None
    if given == out:
        return Meeting(kind, given, out, node, trained[0], consumers[0] if consumers else None)
    padded = (1,) * (len(out) - len(given)) + given
    target = tuple(size if own == 1 else 1 for own, size in zip(padded, out, strict=True))
    while target and target[0] == 1:
        target = target[1:]
    if sizes(target) != sizes(given) or not _repeats(torch, node, consumers, out):
        return None  # one side alone is repeated: a target of its own for every pair
    return Meeting(kind, given, target)


def _repeats(torch: Any, node: Any, consumers: Consumers, shape: Shape) -> bool:
    """Whether a saved table of differences holds as many different numbers as two vectors give: d[i, j] = p[i] - y[j].

    A full table of targets, one for every pair, would have the same shape.
    """
    saved = _kept(torch, node, consumers, shape)
    if saved is None or not saved.is_cpu or saved.dim() < 2:
        return False
    with torch.no_grad():
        table = saved.detach()
        while table.dim() > 2:
            table = table[0] if table.shape[0] == 1 or table.shape[-1] > 1 else table[..., 0]
        table = table[:SEEN, :SEEN].double()
        along = table - table[:, :1]
        return bool((along - along[:1]).abs().max() <= 1e-4 * table.abs().max() + 1e-30)


def _kept(torch: Any, node: Any, consumers: Consumers, shape: Shape) -> Any:
    """What an operation put out, as the next one has saved it, or one beyond, where only numbers scale between."""
    for consumer in consumers[:MAX_SCALINGS]:
        sides = [following for following, _ in consumer.next_functions]
        saved: Any = saved_values.saved(consumer, "self" if sides[0] is node else "other")
        if isinstance(saved, torch.Tensor) and tuple(saved.shape) == shape:
            return saved
        if kind_of(consumer) not in SCALING or shape_of(consumer, 0) != shape:
            return None
        node = consumer
    return None


def shape_of(node: Any, place: int) -> Shape | None:
    """The shape of what an operation put out, the first or a later output; None where it is not known."""
    return saved_values.sizes_of(node, place)


def kind_of(node: Any) -> str:
    """The operation of an autograd node; empty for None."""
    return "" if node is None else saved_values.kind(node).rpartition("::")[2]
