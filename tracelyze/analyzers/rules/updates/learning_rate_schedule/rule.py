"""learning-rate-schedule: the rate is zero, or the scheduler counts in another unit than the one it is stepped in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.rule import Limits, OneOutcome, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.analyzers.rules.updates.learning_rate_schedule import (
    climbs_again,
    findings,
    leaps,
    mismatches,
    zero_rates,
)
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Each optimizer's rate, with what is known of its scheduler."""
    known = schedulers.last_rows(process)
    return combine(_check(optimization, known, limits) for optimization in process.optimizations)


def _check(optimization: Optimization, known: list[Row], limits: Limits) -> OneOutcome:
    rate = optimization.steps["lr"]
    rate = rate[np.isfinite(rate)]
    if len(rate) < limits["steps"]:
        return Skipped(f"the learning rate of fewer than {limits['steps']:.0f} steps is known")
    outer = [row for row in known if row["optimizer"] == optimization.optimizer and not row["inner"]]
    scheduler = outer[0] if len(outer) == 1 else None
    if scheduler is not None and scheduler["mode"]:  # a ReduceLROnPlateau: why it cuts comes before how far it did
        misled = mismatches.first(optimization, outer, limits)
        if misled is not None:
            return findings.of_mismatch(optimization, misled, RULE.id)
    zero = zero_rates.finding(optimization, scheduler, RULE.id, limits)
    if zero is not None:
        return zero
    climbs = climbs_again.finding(optimization, scheduler, RULE.id, limits)
    if climbs is not None:
        return climbs
    stranger = mismatches.of_another_optimizer(optimization, known, limits)
    if stranger is not None:
        return findings.of_mismatch(optimization, stranger, RULE.id)
    leap = leaps.row_of(optimization, limits)
    if leap is not None:
        return leaps.finding(optimization, leap, scheduler, RULE.id, limits)
    found = mismatches.first(optimization, outer, limits)
    if found is not None:
        return findings.of_mismatch(optimization, found, RULE.id)
    low, high = number(float(rate.min())), number(float(rate.max()))
    return Passed(f"the rate stays at {low}" if low == high else f"the rate stays between {low} and {high}")


RULE = Rule(
    id="learning-rate-schedule",
    family="loss",
    severity="warning",
    title="The learning-rate schedule does not fit the training",
    about="A schedule counts either batches or epochs. Stepped in the wrong unit, it ends far too early or never gets "
    "going.",
    check=check,
    verify="Record the run again: the learning rate follows its schedule to the end of the training.",
    excluded=("The last steps of a schedule: they are a percent or so of a run.",),
    absent="The run has no learning rate.",
    needs=(("steps.lr",),),
    thresholds=(
        Threshold("steps", 20, "steps", "fewer steps cost nothing worth a warning"),
        Threshold("share", 0.1, "share", "a schedule's last steps at zero are a percent or so of a run"),
        Threshold("nothing", 1e-6, "", "of the highest rate: updates below the resolution of float32"),
        Threshold("apart", 5, "", "steps per scheduler step from which the two units are surely not the same"),
        Threshold("few", 50, "steps", "a cosine over fewer steps, gone through again and again, counts epochs"),
        Threshold("zero", 1e-3, "", "of its base rate: a warm-up that begins at zero may skip that on purpose"),
        Threshold("cut", 0.5, "", "of the highest rate: ReduceLROnPlateau cuts by half or more, as it is used"),
        Threshold("better", 0.9, "", "a watched value that fell by a tenth, or rose by as much, has become better"),
        Threshold("samples", 20, "samples", "of a pass: a share of fewer is a multiple of almost any small number"),
        Threshold("idle", 100, "steps", "a scheduler that waits for an epoch or an evaluation may step late"),
        Threshold("leap", 5, "", "times the highest rate so far: warm-ups climb slowly, restarts come back to a rate"),
        Threshold("harm", 2, "", "times the losses before: what follows is no noise"),
    ),
    not_when="Schedules that reach zero with the last steps, short runs, interrupted runs, schedules within schedules.",
    references=("https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",),
)
