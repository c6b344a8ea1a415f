"""A learning rate that leaps far above every rate before it, with losses that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.schedules import own_rates
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rules.updates.learning_rate_schedule import findings
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import capitalized, number

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits

_OF_SCHEDULE: Final = (
    "Check what the schedule returns for this step: a division by almost zero, a counter that restarts, or a factor "
    "applied to an already scaled rate."
)
_BOUNDED: Final = "lr_lambda = lambda step: min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)  # never above 1"
_OF_LINE: Final = (
    "Set a lower rate in line {line}, the only one that sets any: {rate} went well. If it is computed there, look for "
    "a division by almost zero, a counter that restarts, or a factor applied to an already scaled rate."
)


def row_of(optimization: Optimization, limits: Limits) -> int | None:
    """The row from which on the rate is far above all rates before it, if the losses after that are far above theirs.

    Restarts and cycles come back to a rate that was there before, and a warm-up climbs in small steps.
    """
    rate, loss = optimization.steps["lr"], optimization.steps["loss"]
    highest = np.fmax.accumulate(np.nan_to_num(rate))
    above = (highest[:-1] > 0) & (rate[1:] >= limits["leap"] * highest[:-1])
    rows = np.flatnonzero(above) + 1
    rows = rows[rows >= limits["steps"]]
    if not len(rows):
        return None
    row, around = int(rows[0]), int(limits["steps"]) // 2
    before, after = loss[row - around : row + 1], loss[row + 1 : row + 1 + around]  # a loss comes before its step
    if not np.isfinite(before).all() or len(after) < around // 2 or np.median(before) <= 0:
        return None
    broken = bool(np.isfinite(after).any()) and not np.isfinite(after).all()
    higher = np.median(after) >= limits["harm"] * np.median(before) and np.median(after) > before.max()
    return row if broken or higher else None


def finding(optimization: Optimization, at: int, scheduler: Row | None, rule: str, limits: Limits) -> Finding:
    """The finding about a leap of the rate at this row of the steps, by this scheduler, or by the script itself."""
    rate, step = optimization.steps["lr"], timing.step_at(optimization, at)
    highest, leapt = float(np.nanmax(rate[:at])), float(rate[at])
    place = script_lines.only(optimization.process, "rate-text", own_rates.OF_GROUP) if scheduler is None else None
    who = scheduler["name"] if scheduler else capitalized(own_rates.who(place))
    fault = findings.RateFault(
        title=f"The learning rate jumps from {number(highest)} to {number(leapt)} at step {step:,}; the loss follows",
        what=f"{who} sets a rate that is {number(leapt / highest)} times "
        "the highest before it, from one step to the next, and the losses that follow are far above those before.",
        fix=_OF_SCHEDULE if place is None else _OF_LINE.format(line=place.line, rate=number(highest)),
        code=_BOUNDED if place is None else "",
        verify="Record the run again: the rate does not leap, and the losses go on as before.",
        first=at,
    )
    evidence = [Evidence("rate over the highest before", leapt / highest, "", *limits.against("leap"))]
    found = findings.about_rate(optimization, scheduler, fault, rule, evidence, confidence="likely")
    return replace(found, location=place, seen_at=found.location) if place is not None else found
