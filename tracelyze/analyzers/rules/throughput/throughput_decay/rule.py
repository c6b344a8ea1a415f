"""throughput-decay: steps take longer and longer, although each has as much to do as the ones before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import leaks, style
from tracelyze.analyzers.computed.throughput import outliers, pace, workload
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, OneOutcome, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.analyzers.rules.throughput.throughput_decay import climbs
from tracelyze.diagnosis import Cost, Evidence, Finding, Mark
from tracelyze.formatting import duration, number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.analyzers.statistics.growth import Climb


def check(process: Process, limits: Limits) -> Outcome:
    """The floor of the step time, without evaluations, recording, and time that other programs took."""
    if len(process.optimizations) > 1:
        return Skipped(
            style.several(
                process, "several optimizers train together, and how much work a step of one of them has is not known"
            ),
            "not-applicable",
        )
    return combine(_check(optimization, limits) for optimization in process.optimizations)


def _check(optimization: Optimization, limits: Limits) -> OneOutcome:
    own, judged = pace.own_seconds(optimization, int(limits["warm_up"]))
    outcome, acting = _judge(optimization, own, judged, limits), pace.of_acting(optimization)
    if isinstance(outcome, Finding) or acting is None:
        return outcome
    own += acting
    if not pace.calls_take_longer(optimization, own, judged, limits["work"], limits["grave"]):
        return outcome
    found = _judge(optimization, own, judged, limits, acts=True)
    return found if isinstance(found, Finding) else outcome


def _judge(
    optimization: Optimization, own: Floats, judged: Mask, limits: Limits, *, acts: bool = False
) -> Finding | Passed | Skipped:
    """Whether steps get slower and slower, by the seconds that each one took itself. `acts`: calls of the model are
    known to explain less than they got longer."""
    if judged.sum() < limits["fewest"]:
        return Skipped(f"{plural(int(judged.sum()), 'step')} after the warm-up: {limits['fewest']:.0f} are needed")
    slower = climbs.of(optimization, own, judged, limits)
    if slower is None:
        return Passed(climbs.NOT_STEADY)
    climb, whole, of, told = slower
    lost, slow = slower.lost(judged), slower.said
    share, grave = lost / max(whole, 1e-9), slower.is_grave(judged, limits)  # in however short a run: longer lose more
    if not told:
        return Passed(f"{slow}, and {climbs.NOT_STEADY}")
    grown = max(pace.increase(own, judged), 1e-9)
    if climb.ratio < limits["ratio"] or (lost < limits["worth"] and not grave) or share < limits["share"]:
        return Passed(f"{slow}, {duration(lost)} in all")
    others = np.minimum(pace.crowded(optimization), own)  # longer steps meet them for longer: what is left counts, too
    crowded = not of and pace.increase(others, judged) > limits["others"] * grown
    if crowded and pace.times_longer(own - others, judged) < limits["grave"]:
        return Passed(f"{slow}, mostly because other programs held the processors")
    if optimization.facts.get("name") == "LBFGS":  # its history fills, too
        return Passed(f"{slow}, of an optimizer that calls the model as often as it needs")
    work = workload.growth(optimization)
    if not work:
        return Skipped(f"{slow}, but whether they had more to do is not known: no shapes were recorded late in the run")
    most = max(work, key=lambda name: work[name])
    if work[most] >= limits["work"] and not acts:
        return Passed(f"{slow}, and have more to do: {most} grew by {number(work[most])} times")
    waited = pace.increase(optimization.steps["loader_wait"], judged) / grown
    if waited >= outliers.EXPLAINED and leaks.first_epoch(optimization):
        return Passed(f"{slow}, by the wait for data in the first pass over them: they may be in order of size")
    model = pace.within_model_late(optimization)
    unseen = model is None and not (grave and lost < limits["worth"])
    if waited < outliers.EXPLAINED and workload.FORWARDS not in work and (unseen or (model or 0.0) > limits["model"]):
        return Skipped(f"{slow}, but how often a step calls the model is not known")
    cost = Cost(lost, share, "the processor time of all steps") if of else Cost(lost, share)
    reason = pace.reason(optimization, waited, acts)
    return _finding(optimization, int(np.flatnonzero(judged)[climb.start]), climb, cost, reason, of, limits)


def _finding(
    optimization: Optimization, first: int, climb: Climb, cost: Cost, reason: pace.Reason, of: str, limits: Limits
) -> Finding:
    begin = timing.step_at(optimization, first)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Steps keep getting slower: {duration(climb.floor_start)}{of} at first, "
        f"{duration(climb.floor_end)} at the end",
        summary=(
            f"Since step {begin:,} each step takes {duration(climb.slope)}{of} more than the one before. "
            f"That has cost {duration(cost.seconds or 0.0)}, "
            f"{percent(cost.share or 0.0)} of {'that time' if of else 'the run'}. {reason.why}"
        ),
        fix=reason.fix,
        fix_code=reason.code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("step time, last over first", climb.ratio, "times", *limits.against("ratio")),
            Evidence("time lost", cost.seconds, "s", *limits.against("worth")),
            Evidence("part of the increase that is waiting for data", max(0.0, reason.waited), "share"),
        ],
        cost=cost,
        location=reason.place,
        seen_at=reason.seen_at,
        charts=pictures.time_split(optimization, [Mark(float(begin), "slower from here")]),
        false_alarm="Work that grows without changing modules or shapes (a solver, a simulation); a device that gets "
        "hot.",
    )


RULE = Rule(
    id="throughput-decay",
    family="throughput",
    severity="warning",
    title="Steps take longer and longer",
    about="Equal steps should take equal time. If step time climbs steadily, each step goes over everything so far.",
    check=check,
    verify="Record the run again: steps at the end take as long as at the start.",
    needs=(("steps.seconds", "steps.time"),),
    thresholds=(
        Threshold("warm_up", 10, "steps", "derived: compilation, autotuning and caches take the first steps"),
        Threshold("fewest", 60, "steps", "derived: a climb of fewer cannot be told from noise"),
        Threshold("order", 0.85, "Kendall tau", "measured: levels of a busy machine that wander reach 0.8"),
        Threshold("steady", 4.5, "standard errors", "measured: 5.8 to 60 where other programs disturb a real climb"),
        Threshold("ratio", 1.5, "times", "derived: clocks that give way to heat cost a quarter to a third"),
        Threshold("worth", 2, "s", "measured: hiccups of a busy machine cost 150 short runs up to 1.5 s each"),
        Threshold("share", 0.15, "share", "derived: half of that climb, over the run"),
        Threshold("grave", 2.5, "times", "derived: no clock gives way that far, and no machine fills that evenly"),
        Threshold("most", 0.3, "share", "derived: a run twice as long would lose half of its time"),
        Threshold("others", 0.5, "share", "derived: of the increase; more than all other causes together"),
        Threshold("model", 0.25, "share", "derived: three quarters of a late step are spent elsewhere"),
        Threshold("work", 1.1, "times", "derived: a tenth more to do is no longer the same work"),
    ),
    not_when="Longer sequences, larger batches, more calls, unfrozen layers, evaluations, other programs, recording.",
)
