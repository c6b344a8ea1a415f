"""Targets that are a slice of a longer tensor: in which order does that hold the labels?

A loop that cuts its batches out of one tensor shows with a single batch how all labels lie in memory, one behind the
other, which no loader does.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.tensors.safe_computing import is_plain

COLUMNS = ("kept_rows", "kept_looked", "kept_blocks", "kept_values", "kept_rising")
LOOKED = 2048  # labels that are looked at, spread evenly over all
MOST = 1 << 24  # labels that may be kept: to touch many pages of a file that is mapped would take long


def rows_and_order(torch: Any, target: Any) -> tuple[dict[str, int], dict[str, Any]]:
    """Columns of a row of loss_calls: numbers that are known, and tensors without dimensions.

    Empty where the target is all that its memory holds, or no label of a sample.
    """
    if not is_plain(torch, target) or not target.dim() or target.numel() != target.shape[0] or target.numel() < 2:
        return {}, {}
    step = int(target.stride(0))
    if not step:  # one label for all
        return {}, {}
    there = target.untyped_storage().nbytes() // target.element_size()
    first = int(target.storage_offset()) % step
    rows = (there - first + step - 1) // step
    if rows <= target.shape[0] or rows > MOST:
        return {}, {}
    every = -(-rows // LOOKED)
    labels = target.detach().as_strided((-(-rows // every),), (step * every,), first)
    before, after = labels[:-1], labels[1:]
    ordered = labels.sort().values
    return {"kept_rows": rows, "kept_looked": int(labels.numel())}, {
        "kept_blocks": (before != after).sum() + 1,
        "kept_values": (ordered[1:] != ordered[:-1]).sum() + 1,
        "kept_rising": (after > before).sum() - (after < before).sum(),
    }
