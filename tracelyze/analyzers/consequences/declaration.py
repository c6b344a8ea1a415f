"""A row of the table: which effect can follow from which causes, how soon, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.diagnosis import EndCause, Trait


@dataclass(frozen=True)
class Delay:
    """For how long after a cause was last seen its effect may begin: `steps`, and a `share` of the run's steps."""

    steps: float
    share: float

    def reaches(self, cause_seen: int, effect_began: int, run_steps: int) -> bool:
        """Whether an effect that began at this step may still come from a cause that was last seen at that one."""
        return effect_began <= cause_seen + self.steps + self.share * run_steps


ANY_TIME: Final = Delay(float("inf"), 0.0)
"""The cause changes the weights, or what the program holds, for good."""
AT_ONCE: Final = Delay(50, 0.05)
"""The cause passes. 50 steps are five times what a momentum of 0.9 remembers; sampled signals and smoothed curves place
an onset within a twentieth of the run."""


@dataclass(frozen=True)
class Consequence:
    """`effect` can follow from each of `causes`, within `delay`, because of `why`.

    `unless`: an effect with one of these traits comes from something else; so does one that was `ended_by` one of
    these. `given`: a cause has this effect only with this trait. `seen_by`: an effect comes from these causes only
    with this trait of its own. `grave`: only a cause that is a warning or worse has this effect (one that is reported
    as information is harmless). `left_out`: the effect is another name for what the causes do, and is not reported
    beside one that is certain.
    """

    effect: str
    causes: tuple[str, ...]
    why: str
    delay: Delay = ANY_TIME
    unless: tuple[Trait, ...] = ()
    given: Trait | None = None
    seen_by: Trait | None = None
    left_out: bool = False
    grave: bool = False
    ended_by: tuple[EndCause, ...] = ()
