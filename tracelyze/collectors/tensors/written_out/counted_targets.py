"""Over how many targets a cross-entropy is a mean, and what that mean is multiplied by, read from the graph behind it.

`(nll * mask).sum() / mask.sum()` is a mean as `F.cross_entropy(scores, targets)` is, and calls nothing that says so.
Every factor, divisor and mask on the way from the loss to the picked log-probabilities is a constant that the graph
has saved. Nothing is read here: what is found are tensors without dimensions, on the device of the loss.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.graphs import COPIES, SQUEEZES, VIEWS
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.written_out.errors import kind_of

MAX_DEEP = 24  # operations on one way
MAX_TERMS = 4  # of a sum of losses, within each other
MAX_TARGETS = 2**22
# Operations that keep the elements and their order.
KEEPING = frozenset((*VIEWS, *SQUEEZES, *COPIES, "Neg", "Contiguous"))
PICKING = ("Gather", "Index")
BETWEEN = frozenset((*KEEPING, "Slice", "Transpose", "Log", "Clamp", "ClampMin", "Add"))  # a pick and its softmax


class Counted(NamedTuple):
    """`targets` count in a loss. `weight`: what their mean is multiplied by in it: 1 in a mean, their number in a
    sum; not a number where what leaves positions out is no mask."""

    targets: Any
    weight: Any


class _Way(NamedTuple):
    """What was met on the way down: the factor of each target that counts, and which of them do."""

    factor: Any = 1.0
    masks: tuple[Any, ...] = ()


def counted(torch: Any, root: Any) -> Counted | None:
    """The targets of the only term of a loss that is a cross-entropy; None if there is none, or if there are several.

    Within `unseen` and `no_grad`, where it is safe to compute.
    """
    return _term(torch, root, _Way(), MAX_TERMS)


def _term(torch: Any, node: Any, way: _Way, terms: int) -> Counted | None:
    for _ in range(MAX_DEEP):
        kind = kind_of(node)
        if kind in ("Add", "Sub"):
            parts = node.next_functions if terms and _alike(node) else ()
            found = [None if part is None else _term(torch, part, way, terms - 1) for part, _ in parts]
            known = [one for one in found if one is not None]
            return None if len(known) != 1 or (kind == "Sub" and found[0] is None) else known[0]
        if kind in ("NllLoss", "NllLoss2D"):
            return _of_torch(torch, node, way)
        if kind in PICKING:
            return _picked(torch, node, way)
        further = _through(torch, node, kind, way)
        following = graphs.only_following(node)
        if further is None or following is None:
            return None
        node, way = following, further
    return None


def _alike(node: Any) -> bool:
    """Whether what is added has the shape of the sum, as the terms of a loss have, or those of each target: one for its
    class and one for all of them, as in a label smoothing that is written out."""
    sizes = saved_values.sizes_of(node)
    return sizes is not None and all(saved_values.sizes_of(one) in (sizes, None) for one in graphs.following(node))


def _through(torch: Any, node: Any, kind: str, way: _Way) -> _Way | None:
    """The way behind an operation that scales the elements, sums them up, or leaves some out; None at any other."""
    trained = [place for place, (one, _) in enumerate(node.next_functions) if one is not None]
    if len(trained) != 1:
        return None
    if kind in KEEPING or kind == "Sum":
        return way
    if kind == "Mean":
        before, after = saved_values.sizes_of(node.next_functions[trained[0]][0]), saved_values.sizes_of(node)
        return (
            None
            if before is None or after is None
            else way._replace(factor=way.factor * prod(after) / max(prod(before), 1))
        )
    if kind in ("Mul", "Div"):
        return _scaled(torch, node, kind, trained[0], way)
    mask = _left_out(torch, node, kind, trained[0])
    return None if mask is None else way._replace(masks=(*way.masks, mask))


def _scaled(torch: Any, node: Any, kind: str, trained: int, way: _Way) -> _Way | None:
    """Behind a factor: a number for all elements, or one for each, which may be a mask."""
    if kind == "Div" and trained != 0:
        return None
    given: Any = saved_values.saved(node, "other" if trained == 0 else "self")
    if given is None:
        # A plain number is not saved as a tensor; of one that is, the program's own hook would run.
        number = None if hasattr(node, "_raw_saved_other") else getattr(node, "_saved_other", None)
        return way._replace(factor=_times(way.factor, number, kind)) if type(number) in (int, float) else None
    if not is_plain(torch, given) or given.is_complex():
        return None
    if given.numel() == 1 and not (given.dim() and prod(saved_values.sizes_of(node) or ()) != 1):
        return way._replace(factor=_times(way.factor, given.detach().reshape(()), kind))
    return way._replace(masks=(*way.masks, given)) if kind == "Mul" else None


def _times(factor: Any, given: Any, kind: str) -> Any:
    return factor * given if kind == "Mul" else factor / given


def _left_out(torch: Any, node: Any, kind: str, trained: int) -> Any:
    """The mask of an operation that leaves positions out: True for those that stay."""
    if kind == "Where":
        given = saved_values.saved(node, "condition")
        return None if given is None else given if trained == 0 else ~given
    if kind in ("MaskedFill", "MaskedSelect"):
        given = saved_values.saved(node, "mask")
        return None if given is None else ~given if kind == "MaskedFill" else given
    return None


def _chosen(torch: Any, node: Any) -> Any:
    """The mask by which `nll[mask]` chooses; None for an index of another kind."""
    indices = saved_values.saved_several(node, "indices")
    one = indices[0] if len(indices) == 1 else None
    return one if isinstance(one, torch.Tensor) and one.dtype is torch.bool else None


def _of_torch(torch: Any, node: Any, way: _Way) -> Counted | None:
    """At torch's own loss over classes."""
    target, ignored = saved_values.saved(node, "target"), getattr(node, "_saved_ignore_index", None)
    weighted = getattr(node, "_raw_saved_weight", None)
    if target is None or ignored is None or not is_plain(torch, target) or not 0 < target.numel() <= MAX_TARGETS:
        return None
    if weighted is not None and saved_values.saved(node, "weight") is not None:
        return None
    counting = target.detach().reshape(-1) != saved_values.signed(ignored)
    found = _together(torch, counting, way)
    if found is None:
        return None
    # 0: none, 1: mean, 2: sum
    return found._replace(weight=found.weight / found.targets) if node._saved_reduction == 1 else found


def _picked(torch: Any, node: Any, way: _Way) -> Counted | None:
    """At an operation that picks the targets' log-probabilities; or that chooses by a mask, and torch's loss behind."""
    mask = _chosen(torch, node) if kind_of(node) == "Index" else None
    if mask is not None:
        following = graphs.only_following(node)
        chosen = way._replace(masks=(mask,))
        return _term(torch, following, chosen, 0) if following is not None and not way.masks else None
    sizes = saved_values.sizes_of(node)
    if sizes is None or prod(sizes) > MAX_TARGETS or not prod(sizes) or not _of_log_softmax(node):
        return None
    if kind_of(node) == "Gather":
        index = saved_values.saved(node, "index")
        if index is None or index.shape[-1] != 1:
            return None
        counting = torch.ones(prod(sizes), dtype=torch.bool, device=index.device)
    else:
        indices = saved_values.saved_several(node, "indices")
        if len(indices) < 2 or not all(
            isinstance(one, torch.Tensor) and not one.is_floating_point() for one in indices
        ):
            return None
        counting = torch.ones(prod(sizes), dtype=torch.bool, device=indices[-1].device)
    return _together(torch, counting, way)


def _of_log_softmax(node: Any) -> bool:
    logarithm = False
    for _ in range(MAX_DEEP):
        node = graphs.only_following(node)
        if node is None:
            return False
        kind = kind_of(node)
        if kind == "LogSoftmax" or (kind == "Softmax" and logarithm):
            return True
        if kind not in BETWEEN:
            return False
        logarithm = logarithm or kind == "Log"
    return False


def _together(torch: Any, counting: Any, way: _Way) -> Counted | None:
    """What counts by all masks, each of which has to be of zeros and ones; and the weight of a sum over them."""
    kept, masks_only = counting, torch.ones((), dtype=torch.bool, device=counting.device)
    for mask in way.masks:
        if not is_plain(torch, mask) or mask.device != counting.device or mask.numel() != counting.numel():
            return None
        flat = mask.detach().reshape(-1)
        if flat.dtype is not torch.bool:
            masks_only = masks_only & ((flat == 0) | (flat == 1)).all()
        kept = kept & (flat != 0)
    targets = kept.sum().float()
    if isinstance(way.factor, torch.Tensor) and way.factor.device not in (counting.device, torch.device("cpu")):
        return None
    weight = targets * way.factor
    return Counted(targets, torch.where(masks_only, weight, torch.full_like(weight, float("nan"))))
