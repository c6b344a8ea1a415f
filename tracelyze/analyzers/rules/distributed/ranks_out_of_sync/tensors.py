"""Tensors whose weights differ between ranks, and those that are equal on all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.ranks import last_phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process

DDP = "DistributedDataParallel"
MOST_NAMED = 4
Key = tuple[str, int]


def are_wrapped(process: Process) -> bool:
    """Whether a model of this process is in a DistributedDataParallel."""
    return any(row["name"] == DDP for row in process.models.records())


def told_apart(process: Process, others: Sequence[Process], equal: float) -> tuple[list[Key], list[Key]]:
    """The tensors whose norms differ on some ranks at the last step that each of these looked at as well, and those
    whose norms are equal on all of them."""
    own = weight_norms(process)
    apart: set[Key] = set()
    same: set[Key] = {key for norms in own.values() for key in norms}
    for other in others:
        theirs = weight_norms(other)
        last = max(own.keys() & theirs.keys(), default=None)
        if last is None:
            return [], []
        common = own[last].keys() & theirs[last].keys()
        far = {key for key in common if abs(own[last][key] - theirs[last][key]) > equal * abs(own[last][key])}
        apart |= far
        same &= common - far
    order = list(dict.fromkeys(key for norms in own.values() for key in norms))
    return [key for key in order if key in apart], [key for key in order if key in same]


def moved(process: Process, equal: float, since: int = 0) -> set[Key]:
    """The tensors whose norms are not what they were when they were first looked at, from step `since` on."""
    by_step = {step: norms for step, norms in weight_norms(process).items() if step >= since}
    if not by_step:
        return set()
    first, last = by_step[min(by_step)], by_step[max(by_step)]
    return {key for key in first.keys() & last.keys() if abs(first[key] - last[key]) > equal * abs(first[key])}


def weight_norms(process: Process) -> dict[int, dict[Key, float]]:
    """Norms of the weights by step; a name that two models use counts up."""
    found: dict[int, dict[Key, float]] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for row in last_phase.parameters(process):
        if row["weight_norm"] is not None and np.isfinite(row["weight_norm"]):
            step, name = int(row["step"]), str(row["parameter"])
            found.setdefault(step, {})[name, seen[step, name]] = float(row["weight_norm"])
            seen[step, name] += 1
    return found
