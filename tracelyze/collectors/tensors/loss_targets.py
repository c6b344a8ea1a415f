"""Predictions beside targets, as a loss function gets them: how much either differs from sample to sample.

A model that answers the same whatever it is given shows in no other way: its loss is that of the best constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLASS_LOSSES = {"cross_entropy": 1, "nll_loss": 1, "kl_div": -1}  # by function: the dimension of the classes
ELEMENTWISE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
BINARY = "binary_cross_entropy_with_logits"
FEWEST = 8  # samples
MAX_ROWS, MAX_INNER, MAX_VALUES = 64, 8, 2**16  # of a batch that are read: first samples, first positions, all
GOLDEN = 0.618034  # multiples of the golden ratio, less their whole parts, lie apart from each other


def options(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a loss over classes by name, however they were given."""
    return dict(zip(("weight", "size_average", "ignore_index"), args[2:], strict=False)) | dict(kwargs)


def weight_of_one(
    torch: Any, function: str, given: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """How much class 1 counts against class 0, where a loss of two classes is given weights for them."""
    if function == "binary_cross_entropy_with_logits":
        weight = kwargs.get("pos_weight")
        if not isinstance(weight, torch.Tensor) or weight.numel() != 1 or weight.device != given.device:
            return {}
        return {"weight_of_one": weight.detach().reshape(()).double()}
    weight = options(args, kwargs).get("weight") if function in ("cross_entropy", "nll_loss") else None
    if not isinstance(weight, torch.Tensor) or weight.shape != (2,) or weight.device != given.device:
        return {}
    return {"weight_of_one": (weight[1] / weight[0]).detach().double()}


def some(tensor: Any, classes: int | None) -> Any:
    """A view of the first samples and positions of a batch, with all classes (dimension `classes`)."""
    kept = tensor.dim() - 1 if classes == -1 else classes
    width = 1 if kept is None else tensor.shape[kept]
    rows = max(1, min(MAX_ROWS, MAX_VALUES // (width * MAX_INNER ** max(0, tensor.dim() - (1 if kept is None else 2)))))
    for dim in range(tensor.dim()):
        if dim != kept:
            tensor = tensor.narrow(dim, 0, min(tensor.shape[dim], MAX_INNER if dim else rows))
    return tensor


def _spread(torch: Any, tensor: Any) -> Any:
    """The first samples of a batch, at positions all over a sample: images have dark edges, spectra none."""
    if tensor.dim() < 2:
        return some(tensor, None)
    rows = max(1, min(MAX_ROWS, MAX_VALUES // MAX_INNER ** (tensor.dim() - 1)))
    if tensor.dim() == 2 and tensor.shape[1] > MAX_INNER**2:
        return torch.cat([tensor[:rows].narrow(1, place, 1) for place in _places(tensor.shape[1])], 1)
    parts = [slice(rows)]
    for size in tensor.shape[1:]:
        stride = max(1, size // MAX_INNER)
        parts.append(slice(stride // 2, min(size, stride // 2 + stride * MAX_INNER), stride))
    return tensor[tuple(parts)]


def _places(size: int) -> list[int]:
    """Positions of a flat sample, one in each of as many equal parts, at ever another place within it. With the same
    distance between all of them, those of a flattened image may all lie in its first column, which is dark."""
    return [int((part + (part + 1) * GOLDEN % 1) * size / MAX_INNER) for part in range(MAX_INNER)]


def columns(
    torch: Any, function: str, given: Any, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Columns of a row of loss_calls, as tensors without dimensions; empty for functions that are not judged."""
    if function in ("cross_entropy", "nll_loss"):
        return _of_classes(torch, function, given, target, options(args, kwargs).get("ignore_index", -100))
    elementwise = function in ELEMENTWISE or function == BINARY
    if not elementwise or given.shape != target.shape or not given.dim():
        return {}
    if not given.is_floating_point() or target.is_complex():
        return {}
    prediction, truth = _spread(torch, given.detach()).float(), _spread(torch, target.detach()).float()
    if len(prediction) < FEWEST:
        return {}
    prediction = prediction.sigmoid() if function == BINARY else prediction
    return {"varies": _between(prediction), "target_varies": _between(truth)}


def _of_classes(torch: Any, function: str, given: Any, target: Any, ignored: Any) -> dict[str, Any]:
    if target.is_floating_point() or given.dim() < 2 or not isinstance(ignored, int):
        return {}
    found = {"ignored": (target.detach() == ignored).float().mean()}
    part = some(given.detach(), 1).float()
    labels = target.detach()
    for dim, size in enumerate((part.shape[0], *part.shape[2:])):
        labels = labels.narrow(dim, 0, size)
    shares = part.softmax(1) if function == "cross_entropy" else part.exp()
    shares, labels = shares.movedim(1, -1).reshape(-1, part.shape[1]), labels.reshape(-1)
    counts = (labels != ignored).float()
    if len(labels) < FEWEST or target.numel() * given.shape[1] != given.numel():
        return found
    pairs = counts.unsqueeze(0) * counts.unsqueeze(1)
    alike = ((labels.unsqueeze(0) == labels.unsqueeze(1)) * pairs).sum() / pairs.sum().clamp(min=1)
    return found | {"varies": _between(shares), "target_varies": (1.0 - alike).clamp(min=0).sqrt()}


def _between(values: Any) -> Any:
    """Root of the variance over the first dimension, summed over all others."""
    return values.reshape(len(values), -1).var(0, correction=0).sum().sqrt()
