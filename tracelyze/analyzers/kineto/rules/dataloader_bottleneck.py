"""dataloader-bottleneck: the device, or on a CPU run the training thread, waits for the next batch."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.rule import (
    ENOUGH,
    MICROSECONDS,
    Job,
    TraceRule,
    charts,
    measured,
    on_any_trace,
    passed_below,
    place,
    share,
    span,
    steady,
    too_short,
)
from tracelyze.analyzers.kineto.summary import TraceSummary
from tracelyze.analyzers.kineto.table import Floats
from tracelyze.analyzers.rule import Limits, Outcome, Skipped, Threshold
from tracelyze.analyzers.words import duration, percent
from tracelyze.diagnosis import Confidence, Cost, Evidence, Finding

REAL_SAVINGS: Final = (
    "an upper bound: two real pairs of ResNet50 traces, before and after num_workers went from 0 to 4, saved 61 % and "
    "34 % of it (20.6 % of the step where 33.6 % was predicted, 7.8 % where 22.9 % was)"
)
WORKERS: Final = "loader = DataLoader(dataset, num_workers=8, pin_memory=True, persistent_workers=True)"


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    device = summary.device
    if device is None and summary.host is None:
        return Skipped("the trace holds no steps")
    if reason := too_short(summary, limits):
        return Skipped(reason)
    waits = device.cause("input") if device is not None else summary.host[:, 0]  # type: ignore[index]
    value = min(share(summary, waits), _share_without_worst(summary, waits))
    typical = float(waits[steady(summary)].mean()) / MICROSECONDS
    if value >= limits["waiting"] and typical >= limits["least_wait"]:
        return [_waits_for_loader(summary, job, limits, waits, value)]
    if device is not None and summary.counted:
        preparation = device.cause("preparation")
        chosen = steady(summary)
        each = float(np.median(preparation[chosen] / np.maximum(summary.duration[chosen], 1e-9)))
        if min(each, share(summary, preparation)) >= limits["preparing"]:
            return [_prepares(summary, job, limits, preparation)]
    return passed_below("waiting for the data loader", value, limits, "waiting")


def _share_without_worst(summary: TraceSummary, waits: Floats) -> float:
    """The share that is left when the step that waited longest is left out: one stall does not make a bottleneck."""
    chosen = np.flatnonzero(steady(summary))
    if not summary.counted or len(chosen) < 3:
        return share(summary, waits)
    rest = np.delete(chosen, int(np.argmax(waits[chosen])))
    return float(waits[rest].sum() / max(float(summary.duration[rest].sum()), 1e-9))


def _waits_for_loader(summary: TraceSummary, job: Job, limits: Limits, waits: Floats, value: float) -> Finding:
    device = summary.device
    who = "The device" if device is not None else "The training thread"
    first, last = span(summary)
    loader = summary.loaders[0] if summary.loaders else None
    single = any("SingleProcess" in call.name for call in summary.loaders)
    confidence: Confidence = "certain" if summary.counted and len(summary.number) >= 3 else "likely"
    seconds = float(waits.sum()) / MICROSECONDS
    evidence = [
        measured("time spent waiting for the data loader", value, limits, "waiting"),
        Evidence("wait per step", round(float(waits[steady(summary)].mean()) / 1e3, 3), "ms", limits["least_wait"] * 1e3),
        Evidence("predicted saving", round(value, 4), "share of the step", None, REAL_SAVINGS),
    ]
    if device is not None:
        evidence.insert(1, Evidence("device idle", round(share(summary, device.idle), 4), "share of the step"))
    how = "The loader runs in the training process itself (num_workers=0). " if single else ""
    return Finding(
        rule="dataloader-bottleneck",
        severity="critical" if value >= limits["severe"] else "warning",
        confidence=confidence,
        title=f"{who} waits for data {percent(value)} of the time",
        summary=(
            f"{who} stood still for {percent(value)} of the traced steps because the next batch was not ready: "
            f"{duration(seconds)} of {duration(summary.window / MICROSECONDS)}. {how}"
            f"Fixing it saves at most {percent(value)} of each step."
        ),
        fix=(
            "Load batches in worker processes (num_workers of 4 or more), with pinned memory and persistent workers."
            if single
            else "Make a batch cheaper (cache or pre-process the data, decode less), or add workers up to the number of "
            "cores, with prefetch_factor above 2."
        ),
        fix_code=WORKERS if single else "",
        first_step=first,
        last_step=last,
        evidence=evidence,
        cost=Cost(round(seconds, 6), round(value, 4)),
        location=place(loader.file, loader.line, loader.function) if loader else None,
        charts=charts(summary, job),
        false_alarm="A loader that reads from a live source at a fixed rate waits for that source, and no setting helps.",
    )


def _prepares(summary: TraceSummary, job: Job, limits: Limits, preparation: Floats) -> Finding:
    value = share(summary, preparation)
    first, last = span(summary)
    return Finding(
        rule="dataloader-bottleneck",
        severity="warning",
        confidence="possible",
        title=f"The device waits {percent(value)} of the time for the host to prepare the step",
        summary=(
            f"In every step the host works before it gives the device anything to do: {percent(value)} of the traced "
            "time. The trace shows no data loader call there, so this is code of the training loop itself, most often "
            "preparing the batch."
        ),
        fix="Move the preparation of the batch into the Dataset, or its collate function, and load it in worker processes.",
        first_step=first,
        last_step=last,
        evidence=[measured("host work before the first kernel of the step", value, limits, "preparing")],
        cost=Cost(round(float(preparation.sum()) / MICROSECONDS, 6), round(value, 4)),
        charts=charts(summary, job),
        false_alarm="Work before the first kernel that is not about data, such as logging, is counted here too.",
    )


RULE: Final = TraceRule(
    id="dataloader-bottleneck",
    family="throughput",
    severity="warning",
    title="Training waits for data",
    about=(
        "Charges every moment in which the device has nothing to do to what the host was doing, and adds up what falls "
        "under the data loader. A slow loader whose work hides behind the device's own queue costs nothing, and is not "
        "counted. On a trace without a device it is the loader's share of the training thread."
    ),
    check=on_any_trace(check),
    thresholds=(
        *ENOUGH,
        Threshold("waiting", 0.1, "share of the step", "derived: twice the 5 % from which PyTorch's TensorBoard plugin gave "
                  "this advice, because what a fix really saves was a third to two thirds of the wait"),
        Threshold("severe", 0.3, "share of the step", "derived: from here on a third of the hardware's price is lost"),
        Threshold("least_wait", 0.001, "s", "measured: handing a batch over from a worker process takes 0.2 to 1 ms, so "
                  "that shorter waits do not get better with workers"),
        Threshold("preparing", 0.2, "share of the step", "derived: twice `waiting`, because the trace does not say what "
                  "the host was preparing"),
    ),
    not_when="the loader is slow but the device always has work queued; one slow batch, or the first of an epoch",
    references=("https://pytorch.org/docs/stable/data.html",),
)
