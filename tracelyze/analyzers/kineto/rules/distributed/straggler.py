"""straggler: one rank arrives last at the collectives, and all others wait for it."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.collectives import Arrivals, Blame, blame
from tracelyze.analyzers.kineto.rule import MICROSECONDS, PROFILED, Job, TraceRule, charts
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding
from tracelyze.formatting import duration, percent


def check(job: Job, limits: Limits) -> Outcome:
    if len({summary.rank for summary in job.summaries}) < 2:
        return Skipped("the traces are of one rank", "not-applicable")
    usable = [arrivals for arrivals in job.arrivals if arrivals.trusted]
    if not usable:
        return Skipped("no collective could be matched between the ranks")
    if all(arrivals.between_two().all() for arrivals in usable):
        return Skipped(
            "the ranks only send to each other, stage by stage, in which waiting is no fault of a rank",
            "not-applicable",
        )
    blamed = blame(usable)
    worst = max(blamed.delay, key=lambda rank: blamed.delay[rank])
    window = sum(float(np.median([one.window for one in job.summaries])) for _ in usable)
    lost = blamed.delay[worst] / max(window, 1e-9)
    portion = blamed.delay[worst] / max(sum(blamed.delay.values()), 1e-9)
    steady = blamed.chance(worst) <= limits["chance"] or blamed.unevenness(worst) <= limits["unevenness"]
    if lost < limits["lost"] or portion < limits["portion"] or not steady:
        return Passed(f"rank {worst} delays the others most, by {percent(lost)} of the steps, or not steadily")
    return [_finding(job, limits, usable, blamed, worst, lost, portion)]


def _finding(
    job: Job, limits: Limits, usable: list[Arrivals], blamed: Blame, worst: int, lost: float, portion: float
) -> Finding:
    delays, steps = blamed.delay, len(blamed.lags[worst])
    summary = next(one for one in job.summaries if one.rank == worst)
    waited = dict.fromkeys(delays, 0.0)
    for arrivals in usable:
        for rank, time in zip(arrivals.ranks, np.nansum(arrivals.waits(), axis=0).tolist(), strict=True):
            waited[rank] += time
    largest = max(
        float(arrivals.delay()[arrivals.last() == arrivals.ranks.index(worst)].max(initial=0.0))
        for arrivals in usable
        if worst in arrivals.ranks
    )
    second = max((rank for rank in delays if rank != worst), key=lambda rank: delays[rank])
    others = f" Rank {second} comes second." if delays[second] > limits["second"] * delays[worst] else ""
    clocks = (
        " The ranks' clocks differed and were put right by the ends of the collectives." if usable[0].realigned else ""
    )
    return Finding(
        rule="straggler",
        severity="warning",
        confidence="likely" if steps >= limits["sure_steps"] else "possible",
        title=f"Rank {worst} is late: the other ranks wait for it {percent(lost)} of the time",
        summary=(
            f"Rank {worst} arrives last at the collectives, at worst {duration(largest / MICROSECONDS)} after the "
            f"median of the others, and caused {percent(portion)} of all waiting of this kind. Its own "
            f"communication kernels look the shortest, because it waits least.{others}{clocks}"
        ),
        fix=(
            f"Look at what rank {worst} does before the collective: a slower device or a throttled one, more data "
            "or longer sequences than the others, a slower loader or disk on its host, work that only this rank "
            "does."
        ),
        ranks=[worst],
        evidence=[
            Evidence("delay caused", round(lost, 4), "share", *limits.against("lost"), of="the step"),
            Evidence("part of all delay", round(portion, 4), "share", *limits.against("portion")),
            Evidence("largest delay", round(largest / 1e3, 3), "ms"),
            Evidence("time it waits for others", round(waited[worst] / 1e3, 3), "ms"),
            Evidence(
                "median wait of the others",
                round(float(np.median([waited[r] for r in waited if r != worst])) / 1e3, 3),
                "ms",
            ),
        ],
        cost=Cost(round(delays[worst] / MICROSECONDS, 6), round(lost, 4), PROFILED),
        charts=charts(summary, job),
        false_alarm="A single traced step shows who was late once, not who is always late."
        if steps < limits["sure_steps"]
        else "",
    )


RULE: Final = TraceRule(
    id="straggler",
    finds_late_rank=True,
    family="distributed",
    severity="warning",
    title="One rank holds up the others",
    about=(
        "Matches the collectives of all ranks, and looks who arrives last: the kernels of all other ranks begin "
        "earlier and last until then. The delay counts from the median of the other ranks' arrivals."
    ),
    check=check,
    verify="Profile a few steps again: ranks arrive at their collectives at about the same time.",
    thresholds=(
        Threshold("lost", 0.05, "share of the step", "derived: below a twentieth, jitter of arrivals is as large"),
        Threshold("portion", 0.5, "share", "derived: more than all other ranks together"),
        Threshold("chance", 0.02, "", "derived: how often equally slow ranks may look like this (binomial, all ranks)"),
        Threshold("unevenness", 0.2, "", "derived: a delay that differs so little from step to step is no accident"),
        Threshold("sure_steps", 3, "steps", "derived: of fewer, a steady straggler and an accident are alike"),
        Threshold("second", 0.02, "", "derived: of the worst delay; less of it is not worth a sentence"),
    ),
    not_when="all ranks are equally slow, or take turns",
    references=("https://pytorch.org/docs/stable/notes/ddp.html",),
)
