"""exposed-communication: the device does nothing but communicate for a real share of the step."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution import saving
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.rule import (
    ENOUGH,
    MICROSECONDS,
    Job,
    TraceRule,
    charts,
    lost,
    measured,
    on_device,
    passed_below,
    recurring,
    share,
    span,
)
from tracelyze.analyzers.rule import Limits, Outcome, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, percent

MOST: Final = "derived: computation hides no more communication than it lasts"


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    device = summary.device
    assert device is not None
    calls = device.cause("communication")
    if not device.communication.any() and not calls.any():
        return Skipped("the traced steps hold no communication between ranks", "not-applicable")
    waits = job.waiting_steps(summary)
    waited = np.zeros_like(calls) if waits is None else np.minimum(waits, device.exposed_communication)
    time = device.exposed_communication - waited + calls
    value, part = recurring(summary, time), share(summary, waited)
    if value < limits["exposed"]:
        return passed_below("communication that no computation hides", value, limits, "exposed")
    first, last = span(summary)
    cost = lost(summary, float(time.sum()))
    most = share(summary, saving.of_overlap(device, waited) + calls)
    total = max(float(device.communication.sum()), 1e-9)
    hidden = max(float((device.communication - device.exposed_communication).sum()) / total, 0.0)
    apart = (
        " Waiting for ranks that arrive later is included, because only this rank's trace is at hand."
        if waits is None
        else f" Waiting for ranks that arrive later ({percent(part)} of the steps) is not included."
    )
    return [
        Finding(
            rule="exposed-communication",
            severity="warning",
            confidence="possible" if waits is None and summary.world_size != 1 else "likely",
            title=f"Communication that no computation hides takes {percent(cost.share or 0)} of the step",
            summary=(
                f"The device only communicated, or waited for the host to do so, for {duration(cost.seconds or 0)} of "
                f"{duration(summary.window / MICROSECONDS)}; {percent(hidden)} of the device's communication ran "
                f"beside computation.{apart}"
            ),
            fix=(
                "Let communication overlap with the backward pass (DDP does so by itself unless "
                "find_unused_parameters or one huge bucket prevents it), communicate less often (gradient "
                "accumulation under no_sync), in bf16, or raise the batch per rank."
            ),
            first_step=first,
            last_step=last,
            evidence=[
                measured("communication that no computation hides", value, limits, "exposed"),
                Evidence("communication", round(share(summary, device.communication), 4), "share", of="the step"),
                Evidence("predicted saving, at most", round(most, 4), "share", None, MOST, of="the step"),
                Evidence("device idle in the host's calls", round(share(summary, calls), 4), "share", of="the step"),
                Evidence("hidden behind computation", round(hidden, 4), "share", of="the communication"),
            ],
            cost=cost,
            charts=charts(summary, job),
            false_alarm="On one rank's trace a slow neighbour looks like slow communication: add the other traces.",
        )
    ]


RULE: Final = TraceRule(
    id="exposed-communication",
    family="distributed",
    severity="warning",
    title="Communication is not hidden behind computation",
    about=(
        "Finds communication kernels by name, by the collective they carry, by the call that launched them and by "
        "their stream, and measures how long they run while no computing kernel does. Waiting for late ranks is "
        "taken off where the traces of several ranks are given."
    ),
    check=on_device(check),
    verify="Profile a few steps again: communication runs beside computation, or takes less of the step.",
    thresholds=(
        *ENOUGH,
        Threshold("exposed", 0.1, "share of the step", "PyTorch's TensorBoard plugin advised from 10% of the step on"),
    ),
    not_when="communication runs beside computation, or is a wait for a slower rank",
    references=("https://pytorch.org/docs/stable/notes/ddp.html",),
)
