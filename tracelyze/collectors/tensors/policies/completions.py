"""Sequences that a policy wrote and is trained on: how many of them count up to their last place.

A script that leaves out what comes after an end symbol multiplies the loss by a mask. A sequence that is not masked at
its end was cut off at the length limit, or ended there by chance.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.tensors.policies import ratios
from tracelyze.collectors.tensors.policies.weights import THROUGH
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.collectors.tensors.saved_values import saved, signed

COLUMNS = ("rows", "length", "full", "last_same", "last")
SHORTEST = 4  # places: less is no text
MOST = 512  # sequences that are looked at


def facts(torch: Any, root: Any) -> list[Any]:
    """What the masks say of the sequences in a policy's loss: how many there are, and how long; the share of those that
    count up to the end, the share of these that have their commonest last symbol, and the last symbol of the first one.
    Empty where a loss has no such sequences, or no mask."""
    for node, weights, _ in ratios.ways(torch, root, THROUGH | {"Exp"}, "Gather"):
        chosen, masks = saved(node, "index"), [one.detach() for one in weights if one.dim() == 2]
        if not is_plain(torch, chosen) or chosen.dim() != 3:
            continue
        if chosen.shape[signed(node._saved_dim) % 3] == 1:
            chosen = chosen.squeeze(signed(node._saved_dim) % 3)
        masks = [one[:MOST] for one in masks if one.shape == chosen.shape and one.device == chosen.device]
        if masks and chosen.dim() == 2 and chosen.shape[1] >= SHORTEST:
            return _facts(torch, chosen.detach()[:MOST], masks)
    return []


def _facts(torch: Any, chosen: Any, masks: list[Any]) -> list[Any]:
    with torch.no_grad():
        is_mask = [((one == 0) | (one == 1)).all() for one in masks]
        counts = torch.ones_like(chosen, dtype=torch.bool)
        for one, known in zip(masks, is_mask, strict=True):
            counts &= (one != 0) | ~known
        full, last, rows = counts[:, -1], chosen[:, -1], counts.any(1).sum()
        alike = ((last[:, None] == last) & full & full[:, None]).sum(1).amax()
        share = torch.where(torch.stack(is_mask).any(), full.sum() / rows.clamp(min=1), torch.nan)
        length = torch.full((), chosen.shape[1], device=chosen.device)
        return [rows, length, share, alike / full.sum().clamp(min=1), last[0]]
