"""How a diagnosis from traces is declared, and what its check gets to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.collectives import Arrivals
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.attribution.totals import CallTotal
from tracelyze.analyzers.kineto.timeline.table import Floats, Mask, median
from tracelyze.analyzers.merging import merge
from tracelyze.analyzers.rule import Declaration, Limits, Outcome, Passed, Skipped, Threshold, together
from tracelyze.diagnosis import Chart, Cost, Evidence, Finding, Location
from tracelyze.formatting import duration, number, percent

MICROSECONDS: Final = 1e6
PROFILED: Final = "the profiled time"
"""What the costs of traces are shares of."""


@dataclass(frozen=True)
class Job:
    """The traces of one job: a summary of each file, and the collectives matched over the ranks, window by window.

    `picture`: the chart of where each trace's time went, by path. `waits`: how long the rank of each trace waits in
    each step for the last one to arrive at its collectives, microseconds, shape [steps], by path, where known.
    """

    summaries: list[TraceSummary]
    arrivals: list[Arrivals]
    picture: dict[str, Chart] = field(default_factory=dict)
    waits: dict[str, Floats] = field(default_factory=dict)

    def waiting(self, summary: TraceSummary) -> float | None:
        """Microseconds that this rank waits for the last rank in its collectives; None where that is not known."""
        waits = self.waits.get(summary.path)
        return None if waits is None else float(waits.sum())

    def waiting_steps(self, summary: TraceSummary) -> Floats | None:
        """Microseconds of each step that this rank waits for the last rank, shape [steps]; None where not known."""
        return self.waits.get(summary.path)


TraceCheck = Callable[[Job, Limits], Outcome]
OneTraceCheck = Callable[[TraceSummary, Job, Limits], Outcome]


@dataclass(frozen=True, kw_only=True)
class TraceRule(Declaration):
    """One diagnosis, as profiler traces show it.

    `finds_late_rank`: the rank that its findings name is the one that the others wait for.
    """

    check: TraceCheck
    finds_late_rank: bool = False


SHORTEST_WINDOW: Final = Threshold(
    "shortest_window",
    0.05,
    "s",
    "derived: a training step takes tens of milliseconds; below 50 ms a single page fault or the profiler's own "
    "buffer decides the shares",
)
FEWEST_STEPS: Final = Threshold(
    "fewest_steps",
    3,
    "steps",
    "derived: two steps do not show what recurs; the first one is often warm-up",
)
FEWEST_ACTIVITIES: Final = Threshold(
    "fewest_activities",
    1000,
    "device activities",
    "derived: with fewer steps than fewest_steps the kernels have to carry the repetition; one forward and "
    "backward pass of a 50-layer network is about 1,000",
)
LEAST: Final = Threshold(
    "least_activities",
    30,
    "device activities",
    "derived: a forward and a backward pass of a few layers; below that nothing has happened more than once",
)
ENOUGH: Final = (SHORTEST_WINDOW, FEWEST_STEPS, FEWEST_ACTIVITIES, LEAST)
"""What a trace must hold before shares of its time mean anything."""


def too_short(summary: TraceSummary, limits: Limits) -> str | None:
    """Why a trace is too small to judge, or None."""
    window = summary.window / MICROSECONDS
    if window < limits["shortest_window"]:
        return f"the trace covers {duration(window)} of steps, too little to judge"
    return _too_few(summary, limits)


def too_few_gaps(summary: TraceSummary, limits: Limits) -> str | None:
    """Why a trace is too small to judge the gaps between its activities, or None: many of them need not last long."""
    many = sum(device.activities for device in summary.devices) >= limits["fewest_activities"]
    return None if many else too_short(summary, limits)


def _too_few(summary: TraceSummary, limits: Limits) -> str | None:
    steps = len(summary.number) if summary.counted else 0
    activities = sum(device.activities for device in summary.devices)
    if steps < limits["fewest_steps"] and activities < limits["fewest_activities"]:
        return f"the trace holds {steps or 'no'} complete steps and {activities} device activities, too few to judge"
    return None


def steady(summary: TraceSummary) -> Mask:
    """The steps that speak for the rest of the training, shape [steps]: all but the first, where there are enough."""
    chosen = np.ones(len(summary.number), dtype=bool)
    if summary.counted and len(chosen) > FEWEST_STEPS.default:
        chosen[0] = False
    return chosen


def share(summary: TraceSummary, time: Floats) -> float:
    """Share of the steady steps that `time` (microseconds, shape [steps]) makes up."""
    chosen = steady(summary)
    whole = float(summary.duration[chosen].sum())
    return float(time[chosen].sum()) / whole if whole > 0 else 0.0


def recurring(summary: TraceSummary, time: Floats) -> float:
    """Share of the steady steps that `time` makes up, with or without the step that has most of it, if that is less.

    One stall, however long, does not make a bottleneck.
    """
    whole = share(summary, time)
    chosen = np.flatnonzero(steady(summary))
    if not summary.counted or len(chosen) < FEWEST_STEPS.default:
        return whole
    rest = np.delete(chosen, int(np.argmax(time[chosen])))
    return min(whole, float(time[rest].sum() / max(float(summary.duration[rest].sum()), 1e-9)))


def usual(summary: TraceSummary, time: Floats) -> float:
    """Share of the typical steady step that `time` (microseconds, shape [steps]) makes up: the median of them."""
    chosen = steady(summary)
    return median(time[chosen] / np.maximum(summary.duration[chosen], 1e-9))


def on_device(check: OneTraceCheck, short: Callable[[TraceSummary, Limits], str | None] = too_short) -> TraceCheck:
    """A check for each trace that has device work; the findings of all ranks become one.

    What a trace shows that is `short` of what is needed is possible, and says why; that it shows nothing says nothing.
    """
    return _each(check, short)


def on_any_trace(check: OneTraceCheck, short: Callable[[TraceSummary, Limits], str | None] | None = None) -> TraceCheck:
    """A check for each trace, with or without device work; without `short` it decides itself what is long enough."""
    return _each(check, short, need_device=False)


def _each(
    check: OneTraceCheck, short: Callable[[TraceSummary, Limits], str | None] | None, need_device: bool = True
) -> TraceCheck:
    def every(job: Job, limits: Limits) -> Outcome:
        findings: list[Finding] = []
        passed: list[Passed] = []
        skipped: list[Skipped] = []
        for summary in job.summaries:
            if need_device and summary.device is None:
                outcome: Outcome = Skipped("the trace shows no work on a device", "not-applicable")
            elif short and (reason := short(summary, limits)):
                outcome = _small(summary, check, job, limits, reason)
            else:
                outcome = check(summary, job, limits)
            if isinstance(outcome, Passed):
                passed.append(outcome)
            elif isinstance(outcome, Skipped):
                skipped.append(outcome)
            else:
                findings += [replace(finding, ranks=[summary.rank]) for finding in outcome]
        if findings:
            return merge(findings)
        return passed[0] if passed else together(skipped) if skipped else Skipped("no trace was given")

    return every


def _small(summary: TraceSummary, check: OneTraceCheck, job: Job, limits: Limits, reason: str) -> Outcome:
    """What a trace that is too small to judge shows all the same, as a possibility."""
    if sum(device.activities for device in summary.devices) < limits["least_activities"]:
        return Skipped(reason)
    outcome = check(summary, job, limits)
    if not isinstance(outcome, list):
        return Skipped(reason)
    return [
        replace(
            finding,
            confidence="possible",
            severity="warning" if finding.severity == "critical" else finding.severity,
            summary=f"{finding.summary} This is a possibility, no more: {reason}.",
            excluded=[],
            cost=None,  # so that what was judged in full stands before it
        )
        for finding in outcome
    ]


def measured(name: str, value: float, limits: Limits, threshold: str) -> Evidence:
    """A share of the step held against one of the rule's thresholds."""
    return Evidence(name, round(value, 4), "share", *limits.against(threshold), of="the step")


def span(summary: TraceSummary) -> tuple[int | None, int | None]:
    """First and last step number, where steps are counted."""
    if not summary.counted or not len(summary.number):
        return None, None
    return int(summary.number[0]), int(summary.number[-1])


def per_step(summary: TraceSummary, count: float, noun: str) -> str:
    """A count over all steps in words: per step where steps are counted, else in all."""
    if summary.counted:
        return f"{number(count / max(len(summary.number), 1))} {noun} per step"
    return f"{number(count)} {noun} in the trace"


def charts(summary: TraceSummary, job: Job) -> list[Chart]:
    """The picture of this trace's steps."""
    return [job.picture[summary.path]] if summary.path in job.picture else []


def place(call: CallTotal | None) -> Location | None:
    """Where in the script, if the trace recorded it. A trace's Python frame names the line its function begins at."""
    return Location(call.file, call.line, call.function) if call is not None and call.file else None


def lost(summary: TraceSummary, time: float) -> Cost:
    """What `time` (microseconds, over all steps) cost."""
    return Cost(round(time / MICROSECONDS, 6), round(time / max(summary.window, 1e-9), 4), PROFILED)


def passed_below(what: str, value: float, limits: Limits, threshold: str) -> Passed:
    """The share was looked at and is below its threshold."""
    return Passed(f"{what}: {percent(value)} of the steps, below {percent(limits[threshold])}")
