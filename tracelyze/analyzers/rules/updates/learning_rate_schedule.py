"""learning-rate-schedule: the rate is zero, or the scheduler counts in another unit than the one it is stepped in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.optimization import schedules
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, OneOutcome, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


JUDGES = (
    schedules.runs_ahead, schedules.lags_behind, schedules.never_warm, schedules.never_stepped, schedules.begun_early,
    schedules.wrong_way,
)  # fmt: skip


def check(process: Process, limits: Limits) -> Outcome:
    """Each optimizer's rate, with what is known of its scheduler."""
    known = schedules.last_rows(process)
    return combine(_check(optimization, known, limits) for optimization in process.optimizations)


def _check(optimization: Optimization, known: list[dict[str, Any]], limits: Limits) -> OneOutcome:
    steps = optimization.steps
    rows = np.flatnonzero(np.isfinite(steps["lr"]))
    if len(rows) < limits["steps"]:
        return Skipped(f"the learning rate of fewer than {limits['steps']:.0f} steps is known")
    own = [row for row in known if row["optimizer"] == optimization.optimizer]
    outer = [row for row in own if not row["inner"]]
    rate = steps["lr"][rows]
    idle = rate <= limits["nothing"] * rate.max()
    tail = len(idle) - int(np.argmin(idle[::-1])) if not idle.all() else 0
    one_group = (optimization.facts.get("groups") or 1) == 1  # of several, the first may rest while others learn
    if one_group and len(idle) - tail >= max(limits["steps"], limits["share"] * len(idle)):
        return _zero(optimization, rows[tail:], idle.all(), outer[0] if len(outer) == 1 else None, limits)
    stranger = schedules.of_another_optimizer(optimization, known, limits)
    if stranger is not None:
        return schedules.finding(
            optimization,
            stranger,
            RULE.id,
            title=f"{stranger['name']} steers an optimizer that never steps: the learning rate stays the same",
            what=f"{stranger['name']} was stepped {plural(stranger['steps'], 'time')} and moved its optimizer's rate "
            f"from {number(stranger['highest_lr'] or 0.0)} to {number(stranger['lowest_lr'] or 0.0)}, but the one that "
            f"steps holds the same parameters and stayed at {number(float(rate[-1]))}: the optimizer was made again "
            "after the scheduler.",
            fix="Make the scheduler after the optimizer that is used, and hand it that one.",
            code="optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"
            "scheduler = CosineAnnealingLR(optimizer, T_max=epochs)",
            evidence=[Evidence("steps of the scheduler", stranger["steps"], "steps")],
        )
    at = schedules.leap(optimization, limits)
    if at is not None:
        return schedules.leap_finding(optimization, at, outer[0] if len(outer) == 1 else None, RULE.id, limits)
    for judge in JUDGES:
        row = judge(optimization, outer, limits)
        if row is not None:
            return _out_of_step(optimization, row, judge)
    low, high = number(float(rate.min())), number(float(rate.max()))
    return Passed(f"the rate stays at {low}" if low == high else f"the rate stays between {low} and {high}")


def _zero(
    optimization: Optimization,
    rows: np.ndarray[Any, Any],
    always: bool,
    scheduler: schedules.Row | None,
    limits: Limits,
) -> Finding:
    begin, total = int(rows[0]), len(optimization.steps)
    share = (total - begin) / total
    when = "in the whole run" if always else f"from step {timing.step_at(optimization, begin):,} on"
    largest = float(np.nanmax(optimization.steps["lr"][rows]))
    zero = f"practically zero ({largest:.1g})" if largest > 0 else "zero"
    cause, fix, code, per_batch = schedules.cause_of_zero(optimization, scheduler)
    return schedules.finding(
        optimization, scheduler, RULE.id,
        title=f"The learning rate is {zero} {when}: nothing is learned",
        what=f"The rate{timing.name_of(optimization)} is {zero} for {plural(total - begin, 'step')}, {percent(share)} "
        f"of the run. These steps cost time and change nothing.{cause}",
        fix=fix,
        code=code,
        evidence=[Evidence("steps at rate zero", share, "share", limits["share"], limits.source("share"))],
        first=begin,
        severity="critical" if always else "warning",
        at_step=per_batch,
    )  # fmt: skip


def _out_of_step(optimization: Optimization, row: dict[str, Any], judge: Any) -> Finding:
    title, what, fix = schedules.words(optimization, row, judge)
    plateau = f'scheduler = ReduceLROnPlateau(optimizer, mode="{"min" if row["mode"] == "max" else "max"}")'
    return schedules.finding(
        optimization, row, RULE.id, title=title, what=what, fix=fix,
        code=plateau if judge is schedules.wrong_way else schedules.UNITS,
        evidence=[
            Evidence("steps of the scheduler", row["steps"], "steps"),
            Evidence("steps of the optimizer", len(optimization.steps), "steps"),
            Evidence("length of the schedule", row["horizon"], "steps"),
        ],
        at_step=judge is schedules.begun_early,
    )  # fmt: skip


RULE = Rule(
    id="learning-rate-schedule",
    family="loss",
    severity="warning",
    title="The learning-rate schedule does not fit the training",
    about="A schedule counts batches or epochs. Stepped in the other unit it ends far too early, or never gets going.",
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
