"""The climb of the time that a step takes: of its own time, or of the processor time that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed import hooks_added
from tracelyze.analyzers.computed.throughput import pace
from tracelyze.analyzers.rules.throughput.throughput_decay import processor_time
from tracelyze.formatting import duration

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.statistics import Climb

NOT_STEADY = "the time per step does not climb steadily over the run"


class Slower(NamedTuple):
    """A climb; `of` says of which time, where that is not the step's own, and `whole` is that of all steps in seconds.

    `told`: whether it can be told from what other programs do to a run.
    """

    climb: Climb
    whole: float
    of: str
    told: bool

    @property
    def said(self) -> str:
        return f"steps got slower from {duration(self.climb.floor_start)} to {duration(self.climb.floor_end)}{self.of}"

    def lost(self, judged: Mask) -> float:
        """Seconds that the judged steps took beyond what they took at first."""
        return (self.climb.floor_end - self.climb.floor_start) / 2 * (int(judged.sum()) - self.climb.start)

    def is_grave(self, judged: Mask, limits: Limits) -> bool:
        """Whether a longer run would lose most of its time."""
        share = self.lost(judged) / max(self.whole, 1e-9)
        return self.climb.ratio >= limits["grave"] and share >= limits["most"]


def of(optimization: Optimization, own: Floats, judged: Mask, limits: Limits) -> Slower | None:
    """An even climb of the judged steps' own seconds (both of shape [steps]), of their processor time, or else a steep
    one, however uneven.

    On a busy machine steps do not get slower evenly, and only climbs that no such machine makes are told from what it
    does. Where hooks pile up, one is expected, and may be as small as other ones.
    """
    whole = float(np.nansum(optimization.steps["seconds"]))
    climb = statistics.straight_climb(own[judged], tau=limits["order"], steadiness=limits["steady"])
    if climb is not None:
        return Slower(climb, whole, "", told=True)
    piled = hooks_added.of(optimization.process) is not None
    used = processor_time.climb(optimization, judged, tau=limits["order"])
    slower = None
    if used is not None:
        slower = Slower(used, (used.floor_start + used.floor_end) / 2 * len(own), " of processor time", told=piled)
        longer = pace.increase(own, judged) >= limits["others"] * (used.floor_end - used.floor_start)
        slower = slower._replace(told=piled or (longer and slower.is_grave(judged, limits)))
    steep = statistics.steep_climb(own[judged], limits["ratio" if piled else "grave"])
    return Slower(steep, whole, "", told=True) if steep is not None and not (slower and slower.told) else slower
