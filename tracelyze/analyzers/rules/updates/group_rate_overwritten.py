"""group-rate-overwritten: parameter groups that were given rates of their own all train at one rate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.schedules import own_rates, schedulers
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

Row = dict[str, Any]
RAISED = ["A schedule that ends at one lowest rate for all: this one is above the lowest that a group was made with."]


def check(process: Process, limits: Limits) -> Outcome:
    """Rates of an optimizer's groups, as it was made and in its steps."""
    groups: dict[int, list[Row]] = {}
    for row in process.tables["group_rates"].records():
        groups.setdefault(row["optimizer"], []).append(row)
    if not groups:
        return Skipped("no optimizer was made with groups of different rates", "not-applicable")
    found = [
        _finding(process, rows, since, limits)
        for rows in groups.values()
        if (since := _since(rows, limits)) is not None
    ]
    return found or Passed(f"{plural(len(groups), 'optimizer')} with groups of different rates: they stay different")


def _since(rows: list[Row], limits: Limits) -> int | None:
    """The first measurement since which all groups have one rate, if that is from the start."""
    made = json.loads(rows[0]["made"])
    alike = [len(set(now := json.loads(row["now"]))) == 1 and now[0] != 0 for row in rows]
    first = next((index for index, one in enumerate(alike) if all(alike[index:])), None)
    if first is None or len(rows) - first < limits["looks"] or min(made) <= 0:
        return None
    raised = json.loads(rows[first]["now"])[0] > min(made)  # to a common rate; a lowest one is below all
    late = rows[first]["steps"] > limits["early"] and not raised
    return None if late or max(made) < limits["ratio"] * min(made) else first


def _finding(process: Process, rows: list[Row], since: int, limits: Limits) -> Finding:
    row = rows[since]
    made, now = json.loads(row["made"]), json.loads(row["now"])[0]
    scheduler = next((one["scheduler"] for one in rows if one["scheduler"]), None)
    site = next((one["site"] for one in rows if one["site"] is not None), None)
    own = next((one for one in process.optimizations if one.optimizer == row["optimizer"]), None)
    optimization = own or (process.longest if process.optimizations else None)
    training = timing.training_with(process, own)
    stepped = process.site(site) or (optimization.step_location if optimization is not None else None)
    made_at = next(
        (
            one["made_at"]
            for one in schedulers.last_rows(process)
            if (one["optimizer"], one["name"]) == (row["optimizer"], scheduler)
        ),
        None,
    )
    peak = max(json.loads(one["now"])[0] for one in rows[since:])
    highest_since = f" and {number(peak)} at most" if peak > now else ""
    lowest, highest = number(min(made)), number(max(made))
    set_at = None if scheduler else own_rates.set_at(process)
    defined = process.site(next((at for one in rows if (at := one.get("rates_at")) is not None), None))
    fix, code = own_rates.remedy(process, set_at, defined, scheduler, peak * peak < min(made) * max(made))
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"Rates of {len(made)} parameter groups, {lowest} to {highest}, became one: {number(peak)}"
        + (f" ({training})" if training else ""),
        summary=(
            f"The optimizer was made with rates from {lowest} to {highest} for its groups. From its step "
            f"{row['steps']} on all of them have one rate, {number(now)} at first{highest_since}, in each of "
            f"{plural(len(rows) - since, 'measurement')}: "
            + (
                f"{scheduler} sets the same for all. "
                if scheduler
                else f"{own_rates.who(set_at)} sets the same for all. "
            )
            + "Parts meant to learn slowly, usually pretrained layers, now train as fast as new ones, or the other "
            "way round."
        ),
        fix=fix,
        fix_code=code,
        diff=own_rates.of_groups(process, process.site(made_at) or stepped),
        first_step=int(row["steps"]),
        first_second=_second(own, row["steps"]),
        trainings=[training] if training else [],
        evidence=[
            Evidence("highest of the rates, over the lowest", max(made) / min(made), "times", *limits.against("ratio")),
            Evidence("with one rate for all groups", len(rows) - since, "measurements", *limits.against("looks")),
            *([Evidence("scheduler", scheduler)] if scheduler else []),
        ],
        location=defined or process.site(made_at) or set_at or stepped,
        seen_at=stepped,
        charts=pictures.loss(optimization) if optimization is not None else [],
        excluded=RAISED if row["steps"] > limits["early"] else [],  # else what the rule excludes
        false_alarm="Groups whose rates are made equal on purpose.",
    )


def _second(optimization: Optimization | None, step: int) -> float | None:
    """When the optimizer had made this step of its own; another one of the process may have made one of its number."""
    if optimization is None:
        return None
    rows = np.flatnonzero(timing.numbers(optimization) == step)
    return timing.second_at(optimization, int(rows[0])) if len(rows) else None


RULE = Rule(
    id="group-rate-overwritten",
    family="loss",
    severity="warning",
    title="Learning rates of parameter groups are overwritten",
    about="A scheduler or loop that sets one learning rate for all groups overwrites their individual rates.",
    check=check,
    verify="Record the run again: the groups' learning rates keep their ratio.",
    absent="The run has no optimizer with groups of different rates.",
    excluded=(
        "A schedule that ends at one lowest rate for all: the groups have one rate from the start.",
        "A warm-up from zero: rates of zero are not counted.",
    ),
    needs=(("group_rates.now",),),
    thresholds=(
        Threshold("ratio", 1.2, "times", "less is hardly a decision"),
        Threshold("looks", 2, "measurements", "one may be the end of a schedule"),
        Threshold("early", 10, "steps", "later, a schedule may end at one lowest rate for all, which is below them"),
    ),
    not_when="Schedules that keep the ratio of the rates, or end at a common lowest rate.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html",),
)
