"""A cross-entropy that the script writes out by itself: the classes that it picks from log-probabilities.

Torch's own belongs here where it gives the loss of each target, and the script masks and averages these.

`-log_softmax(scores, -1).gather(-1, targets).mean()` calls no loss function. But its graph has saved which classes were
picked, and by which masks some of them were left out. What else stands on the way from the loss to the pick may not
change which targets count: weights, ratios and powers end the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.graphs import COPIES, SQUEEZES, VIEWS
from tracelyze.collectors.tensors.targets.sequences import IGNORED
from tracelyze.collectors.tensors.written_out.errors import kind_of

MAX_NODES = 40
MAX_TARGETS = 2**22
SHAPING = (*VIEWS, *SQUEEZES, *COPIES, "Expand")
# What may stand between a loss and its picks; behind a logarithm, what keeps it from log(0).
PASSING = frozenset((*SHAPING, "Mean", "Sum", "Neg", "Add", "Log", "Clamp", "ClampMin"))
GUARDING = ("Log", "Add", "Clamp", "ClampMin", *SHAPING)
SOFTMAXES = ("LogSoftmax", "Softmax")
OF_EACH, NOT_REDUCED = ("NllLoss", "NllLoss2D"), 0  # torch's losses of single targets


@dataclass(frozen=True)
class Likelihood:
    """`targets`: the class picked at each position, flat, and IGNORED where a mask leaves the position out."""

    node: Any  # of the softmax over the scores
    classes: int
    targets: Any


def likelihood(torch: Any, root: Any) -> Likelihood | None:
    """The first pick of classes on the way down from a loss; None if there is none that is understood."""
    pending: list[tuple[Any, tuple[Any, ...], bool]] = [(root, (), False)]
    seen = 0
    while pending and seen < MAX_NODES:
        node, masks, logarithm = pending.pop(0)
        kind = kind_of(node)
        seen += 1
        found = (_of_each if kind in OF_EACH else _picked)(torch, node, kind, masks, logarithm)
        if found is not None:
            return found
        # A difference is one of two terms of the loss, or compares log-probabilities with those of another model.
        passing = kind in PASSING or (kind == "Sub" and saved_values.sizes_of(node) == ())
        masks = masks if passing else masks + _mask(torch, node, kind)
        if any(mask is None for mask in masks):
            continue
        pending += [(one, masks, logarithm or kind == "Log") for one in graphs.following(node)]
    return None


def _mask(torch: Any, node: Any, kind: str) -> tuple[Any, ...]:
    """What says which positions count here: True for those that do. Nothing at a factor for all of them alike, and
    (None,) at an operation that is something else."""
    trained = [index for index, (one, _) in enumerate(node.next_functions) if one is not None]
    if len(trained) != 1:
        return (None,)
    given: Any = None
    if kind in ("Mul", "Div"):
        given = saved_values.saved(node, "other" if trained[0] == 0 else "self")
        if isinstance(given, torch.Tensor) and given.dim() == 0:
            return ()
    if kind == "Mul" and _zeros_and_ones(torch, given):
        return (given != 0,)
    if kind in ("MaskedFill", "MaskedSelect"):
        given = saved_values.saved(node, "mask")
        return (None,) if given is None else (~given if kind == "MaskedFill" else given,)
    if kind == "Index":
        indices = saved_values.saved_several(node, "indices")
        if len(indices) == 1 and isinstance(indices[0], torch.Tensor) and indices[0].dtype is torch.bool:
            return (indices[0],)
    return (None,)


def _zeros_and_ones(torch: Any, given: Any) -> bool:
    """Whether it is a mask. Numbers on a device would have to be waited for."""
    if not isinstance(given, torch.Tensor) or given.numel() > MAX_TARGETS:
        return False
    if given.dtype is torch.bool:
        return True
    return bool(given.is_cpu and ((given == 0) | (given == 1)).all())


def _picked(torch: Any, node: Any, kind: str, masks: tuple[Any, ...], logarithm: bool) -> Likelihood | None:
    """The classes that an operation picks: by gather, by an index for each row, or by a product with ones and zeros."""
    sides = graphs.following(node) if kind in ("Gather", "Index", "Mul") else []
    if len(sides) != 1:
        return None
    softmax, rows, sliced = _softmax(sides[0], logarithm)
    if softmax is None:
        return None
    classes = rows[-1]
    targets: Any = None
    if kind == "Gather":
        index = saved_values.saved(node, "index")
        last = index is not None and saved_values.is_last(node._saved_dim, index.dim())
        targets = index if last and index.shape[-1] == 1 else None
    elif kind == "Index":
        indices = saved_values.saved_several(node, "indices")
        whole = len(indices) > 1 and all(isinstance(one, torch.Tensor) for one in indices)
        targets = indices[-1] if whole and _every_row(indices) else None
    else:
        ones = saved_values.saved(node, "other" if node.next_functions[0][0] is not None else "self")
        if isinstance(ones, torch.Tensor) and tuple(ones.shape) == rows and _zeros_and_ones(torch, ones):
            targets = torch.where(ones.sum(-1) == 1, ones.to(torch.int8).argmax(-1), IGNORED)
    if targets is None or targets.dtype not in (torch.int64, torch.int32) or targets.numel() > MAX_TARGETS:
        return None
    if targets.numel() != prod(rows[:-1]) and not (sliced and kind == "Gather"):
        return None
    return _masked(torch, softmax, classes, targets.detach().reshape(-1), masks)


def _of_each(torch: Any, node: Any, _kind: str, masks: tuple[Any, ...], _logarithm: bool) -> Likelihood | None:
    """The targets of torch's own loss that reduces nothing, as in `(F.cross_entropy(..., reduction="none") * mask)`."""
    target, softmax = saved_values.saved(node, "target"), node.next_functions[0][0]
    for _ in range(MAX_NODES):
        if softmax is None or saved_values.kind(softmax) not in SHAPING:
            break
        softmax = softmax.next_functions[0][0]
    sizes = saved_values.sizes_of(softmax) if softmax is not None else None
    if (
        node._saved_reduction != NOT_REDUCED
        or target is None
        or not sizes
        or saved_values.kind(softmax) != "LogSoftmax"
    ):
        return None
    classes = sizes[saved_values.signed(softmax._saved_dim)]
    if target.numel() > MAX_TARGETS or saved_values.saved(node, "weight") is not None:
        return None
    targets = target.detach().reshape(-1)
    targets = torch.where(targets == saved_values.signed(node._saved_ignore_index), IGNORED, targets)
    return _masked(torch, softmax, classes, targets, masks)


def _masked(torch: Any, softmax: Any, classes: int, targets: Any, masks: tuple[Any, ...]) -> Likelihood | None:
    for mask in masks:
        if mask.numel() != targets.numel() or mask.device != targets.device:
            return None
        targets = torch.where(mask.reshape(-1), targets, IGNORED)
    return Likelihood(softmax, classes, targets)


def _every_row(indices: tuple[Any, ...]) -> bool:
    """Whether all but the last index count up, so that each row is picked from once, in order (on the CPU only)."""
    targets = indices[-1]
    if len(indices) != 2 or targets.dim() != 1 or not indices[0].is_cpu or indices[0].shape != targets.shape:
        return False
    return bool((indices[0].diff() == 1).all())


def _softmax(node: Any, logarithm: bool) -> tuple[Any, tuple[int, ...], bool]:
    """The softmax over the last dimension whose values, or whose logarithms, are picked from; its sizes; and whether
    the ends of rows were cut off since. (None, (), False) if it is anything else."""
    sliced = False
    for _ in range(MAX_NODES):
        kind = kind_of(node)
        if kind in SOFTMAXES:
            rows = saved_values.sizes_of(node) or ()
            last = rows and saved_values.is_last(node._saved_dim, len(rows))
            return (node, rows, sliced) if last and (logarithm or kind == "LogSoftmax") else (None, (), False)
        following = graphs.only_following(node)
        if following is None:
            break
        if kind == "Slice" and getattr(node, "_saved_start", 1) == 0:
            sliced = True
        elif kind not in GUARDING:
            break
        logarithm = logarithm or kind == "Log"
        node = following
    return None, (), False
