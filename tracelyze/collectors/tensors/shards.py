"""Tensors of which every rank holds a part (FSDP2's DTensors). What is read of them is this rank's part.

Arithmetic on the whole may communicate, and reading its result too: whether and when ranks talk to each other is for
the program to decide.
"""

from __future__ import annotations

from typing import Any


def is_sharded(tensor: Any) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "_local_tensor")


def local(tensor: Any) -> Any:
    """This rank's part; the tensor itself if it is not sharded."""
    return getattr(tensor, "_local_tensor", tensor)


def is_whole(tensor: Any) -> bool:
    """Whether this rank's part has the value of the whole."""
    return all(placement.is_replicate() for placement in getattr(tensor, "placements", ()))
