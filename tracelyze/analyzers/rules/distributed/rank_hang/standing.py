"""Where a rank stood still: the looks at its training thread, once a second, from its last step to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

WAITS: Final = ("torch/distributed/", " _engine_run_backward")
"""Innermost frames of a rank that waits for others; DistributedDataParallel does so in backward."""


@dataclass(frozen=True)
class Standing:
    """The line at which a rank waited for others when it was looked at last, in how many looks in a row, over how many
    seconds, and its longest step before."""

    place: Location
    looks: int
    seconds: float
    longest: float


def of(process: Process) -> Standing | None:
    """Where the rank waited at its end; None where it was last seen elsewhere, or was not looked at."""
    samples = process.samples
    sites, times = samples["site"], samples["time"]
    if not len(sites) or not np.isfinite(sites[-1]):
        return None
    waits = np.array([any(mark in (text or "") for mark in WAITS) for text in samples.text("innermost")], dtype=bool)
    ended = process.steps["time"]
    after = times > float(np.nanmax(ended)) if np.isfinite(ended).any() else np.ones(len(times), dtype=bool)
    still = waits & after & (sites == sites[-1])
    looks = int(len(still) if still.all() else np.argmin(still[::-1]))
    place = process.site(float(sites[-1]))
    if not looks or place is None:
        return None
    seconds = process.steps["seconds"]
    longest = float(np.nanmax(seconds)) if np.isfinite(seconds).any() else 0.0
    return Standing(place, looks, float(times[-1] - times[-looks]), longest)
