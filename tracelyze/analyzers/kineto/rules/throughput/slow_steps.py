"""slow-steps: single steps that take far longer than the others, and what coincides with them."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.attribution import CAUSE_TEXT
from tracelyze.analyzers.kineto.attribution.coincidence import coincidence
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.rule import (
    ENOUGH,
    MICROSECONDS,
    PROFILED,
    Job,
    TraceRule,
    charts,
    on_any_trace,
    too_short,
)
from tracelyze.analyzers.kineto.timeline.table import median
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding
from tracelyze.formatting import duration, listed, number, percent, plural

LOOK: Final = "Check what runs only in these steps: checkpoints, evaluation, logging, garbage collection, disk access."
COLLECTING: Final = (
    "Call gc.freeze() once everything is set up, so that long-lived objects are not scanned again, or use "
    "gc.disable() and call gc.collect() at the same steps on all ranks."
)


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    if not summary.counted or len(summary.number) < limits["fewest_compared"] + 1:
        return Skipped(
            f"the trace has {plural(len(summary.number) if summary.counted else 0, 'step')}, too few to compare"
        )
    if reason := too_short(summary, limits):
        return Skipped(reason)
    later = np.arange(1, len(summary.number))
    time = summary.duration[later]
    middle = median(time)
    spread = 1.4826 * median(np.abs(time - middle))
    slow = later[time > max(limits["ratio"] * middle, middle + limits["spreads"] * spread)]
    excess = float((summary.duration[slow] - middle).sum())
    lost = excess / summary.window
    if not len(slow) or lost < limits["lost"]:
        return Passed(
            f"the slowest of {plural(len(time), 'step')} took {number(float(time.max()) / middle)} times the median"
        )
    if not _on_the_device(summary, limits):
        return Passed("single steps are longer by the host's clock only, in which it waits for the device to catch up")
    seconds = excess / MICROSECONDS
    reason, part = coincidence(summary, slow, later)
    numbers = [int(step) for step in summary.number[slow]]
    return [
        Finding(
            rule="slow-steps",
            severity="warning" if lost >= limits["grave"] else "info",
            confidence="likely" if part >= limits["explained"] and reason != CAUSE_TEXT["unrecorded"] else "possible",
            title=f"{len(slow)} of {plural(len(time), 'step')} took up to "
            f"{duration(float(summary.duration[slow].max()) / MICROSECONDS)}"
            f" instead of {duration(middle / MICROSECONDS)}",
            summary=(
                f"The median step takes {duration(middle / MICROSECONDS)}; "
                f"{'step' if len(numbers) == 1 else 'steps'} {listed(numbers, most=5)} took up to "
                f"{duration(float(summary.duration[slow].max()) / MICROSECONDS)}. {percent(part)} of the excess is: "
                f"{reason}."
            ),
            fix=COLLECTING if reason == CAUSE_TEXT["garbage"] else LOOK,
            first_step=numbers[0],
            last_step=numbers[-1],
            evidence=[
                Evidence(
                    "slowest step over the median",
                    round(float(summary.duration[slow].max()) / middle, 3),
                    "times",
                    *limits.against("ratio"),
                ),
                Evidence("time lost", round(lost, 4), "share", *limits.against("lost"), of="the steps"),
                Evidence("what it went into", reason),
            ],
            cost=Cost(round(seconds, 6), round(lost, 4), PROFILED),
            charts=charts(summary, job),
        )
    ]


def _on_the_device(summary: TraceSummary, limits: Limits) -> bool:
    """Whether some step is slow by the device's clock too: a host that runs ahead waits now and then, at no cost."""
    if summary.executed is None:
        return True
    time = summary.executed[1:]
    return bool((time > limits["ratio"] * median(time)).any())


RULE: Final = TraceRule(
    id="slow-steps",
    family="throughput",
    severity="warning",
    title="Single steps are far slower than the others",
    about="Compares each step after the first with their median, by a robust spread, and says what the rest went into.",
    check=on_any_trace(check),
    verify="Profile a few steps again: no step is far above the median.",
    thresholds=(
        *ENOUGH,
        Threshold("fewest_compared", 5, "steps", "derived: the median of fewer is moved by one slow step"),
        Threshold(
            "ratio",
            1.5,
            "times the median",
            "derived: half a step more than usual; batches of varying length stay below",
        ),
        Threshold(
            "spreads", 6, "robust standard deviations", "derived: six cover a normal distribution to one in a billion"
        ),
        Threshold(
            "lost", 0.05, "share of the steps", "derived: below a twentieth of the time nothing is worth a change"
        ),
        Threshold("grave", 0.2, "share of the steps", "derived: a fifth of the time is worth a change"),
        Threshold("explained", 0.5, "share of the excess", "derived: more than all other causes together"),
    ),
    not_when="the first step is slow, which is warm-up and compilation",
)
