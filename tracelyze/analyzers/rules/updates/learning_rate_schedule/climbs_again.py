"""A learning rate that climbs again behind the end of its schedule, which takes several steps with each of the
optimizer.

A cosine that is gone through twice as fast reaches zero in the middle of the training, and comes back to its highest
rate as the training ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rules.updates.learning_rate_schedule import findings, several_steps
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits

HIGH: Final = 0.5  # of the highest rate: whoever comes back to this has not ended
LOW: Final = 0.01  # of the highest rate: where a cosine turns; one whose end is a tenth of its start does not
SMOOTH: Final = 0.1  # of the highest rate in one step: restarts leap back at once
CYCLES: Final = ("cycle", "Cyclic", "Restart")  # in the name or the line of a scheduler: it climbs again on purpose


def finding(optimization: Optimization, scheduler: Row | None, rule: str, limits: Limits) -> Finding | None:
    """The finding about such a rate; None where it does not climb again, or its scheduler takes a step with each of
    the optimizer, or is made to climb again."""
    rates = optimization.steps["lr"]
    if scheduler is None or len(rates) < limits["idle"] or not np.isfinite(rates).all():
        return None
    made = optimization.process.site(scheduler["made_at"])
    texts = (str(scheduler["name"]), made.source if made is not None else "")
    turn = turns(rates)
    if turn is None or any(word in text for word in CYCLES for text in texts):
        return None
    several = several_steps.of(optimization, scheduler, turn)
    if several is None:
        return None
    step, count = timing.step_at(optimization, turn), len(rates)
    fault = findings.RateFault(
        title=f"The learning rate falls to {number(float(rates[turn]))} by step {step:,} of {count:,} and climbs again",
        what=f"From there it climbs back to {number(float(rates[turn:].max()))}.{several.cause}",
        fix=several.fix,
        code=several.code,
        at_step=several.at_step,
        first=turn,
        verify="Record the run again: the learning rate falls until the end of the training.",
        false_alarm="A schedule that is meant to climb again.",
    )
    evidence = [
        Evidence("steps of the scheduler", scheduler["steps"], "steps"),
        Evidence("steps of the optimizer", scheduler["optimizer_steps"], "steps"),
    ]
    found = findings.about_rate(optimization, scheduler, fault, rule, evidence, confidence="likely")
    found = replace(found, cost=None)  # these steps do train
    return found if several.place is None else replace(found, location=several.place)


def turns(rates: Floats) -> int | None:
    """The row of the lowest rate behind the first high one, from which it climbs back in small steps."""
    highest = float(rates.max())
    if highest <= 0:
        return None
    begun = int(np.argmax(rates >= HIGH * highest))
    low = np.flatnonzero(rates[begun:] <= LOW * highest)
    back = np.flatnonzero(rates[begun + low[0] :] >= HIGH * highest) if len(low) else low
    if not len(back):
        return None
    first = begun + int(low[0])
    turn = first + int(np.argmin(rates[first : first + int(back[0])]))
    climb = np.diff(rates[turn : first + int(back[0]) + 1])
    return turn if (climb >= 0).all() and climb.max() <= SMOOTH * highest else None
