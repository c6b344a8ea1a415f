"""Norms of many tensors at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def norms_of(torch: Any, tensors: Sequence[Any], order: float = 2) -> Any:
    """Norm of each tensor, as one float32 tensor of shape [tensors]; all must be strided and on one device.

    16-bit tensors are summed in 32 bits, where their squares do not overflow. 64-bit ones are not made shorter first,
    nor complex ones real: torch refuses to.
    """
    wide = any(tensor.dtype is torch.float64 or tensor.is_complex() for tensor in tensors)
    found = torch._foreach_norm(tensors, order, dtype=None if wide else torch.float32)
    return torch.stack([norm.to(torch.float32) for norm in found] if wide else found)
