"""What a rank does by itself in a step: the time in which it does not wait for others.

Ranks that average gradients wait in the backward; where the script averages them by a collective of its own, in that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.ranks import arrivals
from tracelyze.analyzers.computed.throughput import contention, loading_lines, pace, waiting

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.ranks.arrivals import Arrivals
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


class OwnWork(NamedTuple):
    """Medians over the steps that were looked at, in seconds: outside of backward, within it, and for the loader.

    `seconds`: from the first of these steps to the last; `crowded`: share of them for which other programs held the
    processors; `place`: the line at which the rank was found most often outside of backward; `loads_at`: the line of
    the dataset that makes its samples.
    """

    own: float
    backward: float
    loading: float
    steps: int
    device: str
    seconds: float
    crowded: float
    place: Location | None
    loads_at: Location | None
    arrivals: Arrivals
    in_collectives: bool = False
    """Whether `backward` is what the rank waited in collectives of the script, and `own` the rest of a step."""


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
        loads_at=_loads_at(process),
        arrivals=arrivals.of(process),
    )


def _loads_at(process: Process) -> Location | None:
    waited = waiting.measure(process.longest)
    if waited is None:
        return None
    return loading_lines.seen(process, waited) or process.site(waited.loader.get("read_by"))


def without_waits(ranks: dict[int, OwnWork]) -> dict[int, OwnWork]:
    """The ranks' own work, where they wait for each other outside of the backward, in collectives of the script."""
    waited = arrivals.waits({rank: one.arrivals for rank, one in ranks.items()})
    steps = {rank: one.own + one.backward for rank, one in ranks.items()}
    if not waited or all(waited[rank] * steps[rank] <= one.backward for rank, one in ranks.items()):
        return ranks  # what they waited may have been within the backward
    return {
        rank: one._replace(
            own=steps[rank] * (1 - waited[rank]), backward=steps[rank] * waited[rank], in_collectives=True
        )
        for rank, one in ranks.items()
    }
