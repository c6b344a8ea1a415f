"""What a recurrence or attention of torch takes for positions: batch_first says which dimension of its input."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.tensors.safe_computing import is_plain

INPUTS = ("query", "input", "src", "tgt")  # first arguments, where they are given by name
OF_IMAGES = 4  # dimensions of what a convolution over images or frames puts out, samples first


def positions_first(torch: Any, module: Any) -> bool | None:
    """Whether a recurrence or attention of torch takes the first dimension for positions; None of other modules."""
    nn = torch.nn
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        module = module.self_attn
    if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
        return not module.batch_first
    return None


def layers(torch: Any, model: Any) -> bool:
    """Whether a model holds any of these modules, or is one."""
    kinds = (torch.nn.RNNBase, torch.nn.MultiheadAttention)  # within the layers of a transformer, too
    return any(isinstance(module, kinds) for module in model.modules())


def facts(torch: Any, module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Columns of the table activations: sizes of the dimensions that it takes for positions and for samples. `args`:
    the module, and what it was given."""
    first = positions_first(torch, module)
    if first is None:
        return {}
    given = args[1] if len(args) > 1 else next((kwargs[name] for name in INPUTS if name in (kwargs or {})), None)
    if not isinstance(given, torch.Tensor) or not is_plain(torch, given) or given.dim() != 3:
        return {}
    positions, rows = (0, 1) if first else (1, 0)
    found = {"positions_first": first, "positions": int(given.shape[positions]), "rows": int(given.shape[rows])}
    outermost = _outermost(given)
    return found if outermost is None else found | {"positions_outermost": outermost == positions}


def _outermost(given: Any) -> int | None:
    """Which of the first two dimensions is the first one of the image-like tensor that this is a view of; None where it
    is a view of none, or that is not known."""
    base = given._base
    if base is None or base.dim() < OF_IMAGES or not base.is_contiguous():
        return None
    size, stride = base.shape[0], base.stride(0)
    same = [place for place in (0, 1) if (given.shape[place], given.stride(place)) == (size, stride)]
    return same[0] if len(same) == 1 and size > 1 else None
