"""stops-short: the training ended by itself, long before the schedule that it follows, or with its first epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.computed.schedules.planned import epoch_loops
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.ending.stops_short import used_up_iterators
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

TOTAL = ("OneCycleLR", "OneCycle")
"""Schedulers whose length is that of the training by definition."""


def check(process: Process, limits: Limits) -> Outcome:
    """The steps of a scheduler that is stepped with its optimizer, against the length that it was given; an iterator
    that is asked again and again after its end."""
    if process.exit.kind != "finished":
        return Skipped("the run did not end by itself", "not-applicable")
    if process.exit.code or (process.world_size > 1 and process.exit.code is None):
        return Skipped("the process did not end well: an exit code other than 0, or none", "not-applicable")
    used_up = used_up_iterators.finding(process, RULE.id, limits)
    left = used_up or epoch_loops.finding(process, RULE.id, limits)
    if left is not None:
        return [left]
    if len(process.optimizations) != 1:
        return Skipped(
            style.several(process, "several optimizers: whose schedule is the length of the training is not known"),
            "not-applicable",
        )
    optimization = process.optimizations[0]
    rows = [row for row in schedulers.last_rows(process) if not row["inner"] and row["horizon"] and row["steps"]]
    rows = [row for row in rows if row["optimizer"] == optimization.optimizer]
    if len(rows) != 1:
        return Skipped(
            "no schedule, or several, or one whose length cannot be read off it, as of a LambdaLR", "not-applicable"
        )
    row, steps = rows[0], len(optimization.steps)
    made = f"{row['name']} is made for {row['horizon']:,} steps and came to {row['steps']:,}"
    if row["name"] not in TOTAL:
        return Skipped(f"{made}; such a schedule may be longer than the training on purpose", "not-applicable")
    if steps < limits["steps"]:
        return Skipped(f"{made}; a training this short may be a trial run", "not-applicable")
    if abs(row["steps"] - steps) > limits["apart"] * steps:
        return Skipped(
            f"{row['name']} is not stepped once per optimizer step: its length counts something else", "not-applicable"
        )
    part = row["steps"] / row["horizon"]
    if part >= limits["part"]:
        return Passed(f"{row['name']} came to {percent(min(part, 1.0))} of its length")
    if epoch_loops.worse_at_the_end(process):
        return Passed(f"{row['name']} came to {percent(part)} of its length, and validation had stopped to improve")
    return [_finding(optimization, row, part, limits)]


def _finding(optimization: Optimization, row: dict[str, Any], part: float, limits: Limits) -> Finding:
    steps, rate = len(optimization.steps), optimization.steps["lr"]
    last = number(float(rate[np.isfinite(rate)][-1])) if np.isfinite(rate).any() else "unknown"
    parts = optimization.steps["backwards"]
    several = int(np.median(parts[np.isfinite(parts)])) if np.isfinite(parts).any() else 1
    each = f"(len(loader) // {several})" if several > 1 else "len(loader)"  # optimizer steps, not batches
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"The training ended after {percent(part)} of its schedule",
        summary=(
            f"{row['name']} is made for {row['horizon']:,} steps, and the run ended by itself after {steps:,}, without "
            f"an error. The learning rate was still {last}: the final part of the schedule, where the rate falls and "
            "most of the quality is gained, never came. Possible causes: a break or a batch limit left over from "
            "debugging, or a number of epochs that differs from the schedule's."
        ),
        fix="Remove what ends the loop early, or give the schedule the actual number of steps.",
        fix_code=f"scheduler = OneCycleLR(optimizer, max_lr, total_steps=epochs * {each})",
        first_step=timing.last_step(optimization),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("steps made, of those of the schedule", part, "share", *limits.against("part"), role="most"),
            Evidence("length of the schedule", row["horizon"], "steps"),
            Evidence("learning rate at the end", last),
        ],
        location=optimization.process.site(row["site"]) or optimization.step_location,
        charts=pictures.over_steps(optimization, "Learning rate", "rate", {"learning rate": "lr"})
        + pictures.loss(optimization),
        false_alarm="A trial run, or one that resumes from here in another process.",
    )


RULE = Rule(
    id="stops-short",
    family="end of run",
    severity="warning",
    title="The training ended before its schedule",
    about="A one-cycle schedule pays off at its end. A training that stops early never gets there; nor does one whose "
    "epochs share an iterator that is empty after the first, or whose loop exits in the first epoch.",
    check=check,
    verify="Record the run again: the loop and its schedule are gone through to their ends.",
    needs=(("schedules.horizon", "steps.lr"), ("events.kind",)),
    thresholds=(
        Threshold("part", 0.8, "share", "the last fifth of a one-cycle schedule is where the rate gets small"),
        Threshold(
            "epochs", 4, "epochs", "a loop of two or three may be left on purpose; one of many rounds was to go on"
        ),
        Threshold("better", 4, "validations", "of a curve that moves by chance an eighth improve three times in a row"),
        Threshold("asked", 2, "times", "an epoch without batches each; one may be how a script looks for more"),
        Threshold("steps", 50, "steps", "fewer are a trial run"),
        Threshold(
            "apart", 0.1, "share", "of the steps: skipped ones set a schedule apart by less, another unit by far more"
        ),
    ),
    not_when="Early stopping, interrupted runs, schedules that are longer than the training on purpose.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html",),
)
