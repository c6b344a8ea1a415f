"""What a rank does by itself in a step: the time outside of backward, in which ranks that average gradients wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.throughput import contention, pace

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


class OwnWork(NamedTuple):
    """Medians over the steps that were looked at, in seconds: outside of backward, within it, and for the loader.

    `seconds`: from the first of these steps to the last; `crowded`: share of them for which other programs held the
    processors; `place`: the line at which the rank was found most often outside of backward.
    """

    own: float
    backward: float
    loading: float
    steps: int
    device: str
    seconds: float
    crowded: float
    place: Location | None


def of(process: Process) -> OwnWork | None:
    """The work of one rank; None where it has several optimizers, or steps of unknown length."""
    if len(process.optimizations) != 1:
        return None
    steps = process.longest.steps
    known = np.isfinite(steps["backward_seconds"]) & np.isfinite(steps["seconds"])
    known &= ~(steps["loader_first"] == 1)
    known[: min(3, len(known))] = False
    if not known.any():
        return None
    backward, seconds = steps["backward_seconds"][known], steps["seconds"][known]
    return OwnWork(
        own=float(np.median(seconds - backward)),
        backward=float(np.median(backward)),
        loading=float(np.median(np.nan_to_num(steps["loader_wait"][known]))),
        steps=int(known.sum()),
        device=process.device,
        seconds=float(np.ptp(steps["time"][known])),
        crowded=contention.shares(process.longest).own,
        place=pace.seen_outside_of_backward(process.longest),
    )
