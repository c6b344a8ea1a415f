"""dataloader-bottleneck: the device, or on a CPU run the training thread, waits for the next batch."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution import saving
from tracelyze.analyzers.kineto.attribution.attribution import CAUSES
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.rule import (
    ENOUGH,
    MICROSECONDS,
    Job,
    TraceRule,
    charts,
    lost,
    measured,
    on_any_trace,
    passed_below,
    place,
    recurring,
    share,
    span,
    steady,
    too_short,
)
from tracelyze.analyzers.kineto.rules.throughput.step_preparation import not_to_be_seen, prepared_on_the_host
from tracelyze.analyzers.kineto.timeline.table import Floats, median
from tracelyze.analyzers.rule import Limits, Outcome, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, percent

READY: Final = "measured: a batch in memory takes 0.7 ms to come from a worker, where the process itself needs 0.1"
MORE: Final = (
    "Make a batch cheaper (cache it, decode less), or add workers to the DataLoader, up to the number of cores."
)
WAITING: Final = Threshold("waiting", 0.1, "share of the step", "derived: twice the 5% of PyTorch's TensorBoard plugin")
WORKERS: Final = "Load in worker processes instead of the training process (num_workers=4 or more), with pinned memory."
CODE: Final = (
    "# its other arguments (batch_size, shuffle) stay as they are:\n"
    "loader = DataLoader(dataset, num_workers=4, pin_memory=True, persistent_workers=True)"
)


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    device = summary.device
    if device is None and summary.host is None:
        return Skipped("the trace holds no steps")
    waits = device.cause("input") if device is not None else np.asarray(summary.host)[:, CAUSES.index("input")]
    within = np.where(summary.epoch_starts, 0.0, waits)  # the first batch of an epoch is another fault
    value = recurring(summary, within)
    typical = float(within[steady(summary)].mean()) / MICROSECONDS
    if value >= limits["waiting"] and typical >= limits["least_wait"]:
        return [_finding(summary, job, limits, waits, value)]
    seen = not_to_be_seen(summary, limits) or prepared_on_the_host(summary, job, limits)
    return seen or passed_below(f"waiting for the data loader{_first_batch(waits, limits)}", value, limits, "waiting")


def _first_batch(waits: Floats, limits: Limits) -> str:
    """The first batch, if it took far longer than the others: workers that start, which is not the steady state."""
    first, others = float(waits[0]), median(waits)
    longer = first > max(limits["first"] * others, limits["start"] * MICROSECONDS)
    return f" (the first batch alone took {duration(first / MICROSECONDS)})" if longer else ""


def _finding(summary: TraceSummary, job: Job, limits: Limits, waits: Floats, value: float) -> Finding:
    who = "The device" if summary.device is not None else "The training thread"
    cost = lost(summary, float(waits.sum()))
    loader = summary.loaders[0] if summary.loaders else None
    single = any("SingleProcess" in call.name for call in summary.loaders)
    first, last = span(summary)
    typical = float(waits[steady(summary)].mean()) / MICROSECONDS
    evidence = [measured("waiting for the data loader, steady steps", value, limits, "waiting")]
    if summary.device is not None:
        evidence.append(Evidence("device idle", round(share(summary, summary.device.idle), 4), "share", of="the step"))
    evidence.append(Evidence("wait per step", round(float(waits[steady(summary)].mean()) / 1e3, 3), "ms"))
    predicted, promise = saving.predicted(summary, limits["hand_over"], limits["contention"], single, cost.share or 0.0)
    return Finding(
        rule="dataloader-bottleneck",
        severity="critical" if value >= limits["severe"] else "warning",
        confidence="certain" if summary.counted and len(summary.number) >= limits["fewest_steps"] else "likely",
        title=f"{who} waits for data {percent(cost.share or 0)} of the time: {duration(typical)} per step",
        summary=(
            f"{who} was idle for {duration(cost.seconds or 0)} of {duration(summary.window / MICROSECONDS)} "
            f"because the next batch was not ready. {promise}"
        ),
        fix=WORKERS if single else MORE,
        fix_code=CODE * single,
        first_step=first,
        last_step=last,
        evidence=[*evidence, *predicted],
        cost=cost,
        location=place(loader),
        charts=charts(summary, job),
        false_alarm="A loader that reads a live source at a fixed rate waits for that source: no setting helps.",
    )


RULE: Final = TraceRule(
    id="dataloader-bottleneck",
    family="throughput",
    severity="warning",
    title="Training waits for data",
    about=(
        "Charges all time in which the device has nothing to do to what the host was doing, and adds up the "
        "data loader's part. Loading that hides behind the device's queue is free. Without a device: its part of "
        "the thread."
    ),
    check=on_any_trace(check, too_short),
    verify=f"Profile a few steps again: waiting for data takes less than {percent(WAITING.default)} of a step.",
    thresholds=(
        *ENOUGH,
        WAITING,
        Threshold("severe", 0.3, "share of the step", "derived: a third of the hardware's price is lost from here on"),
        Threshold("least_wait", 0.001, "s", READY),
        saving.HAND_OVER,
        saving.CONTENTION,
        Threshold("preparing", 0.2, "share of the step", "derived: twice `waiting`: what is prepared is not seen"),
        Threshold("first", 10, "times the median", "derived: a first batch that is worth a word"),
        Threshold("start", 0.1, "s", "derived: starting a process takes about as long"),
    ),
    not_when="the device always has work queued although the loader is slow; one slow batch, or the first of an epoch",
    references=("https://pytorch.org/docs/stable/data.html",),
)
