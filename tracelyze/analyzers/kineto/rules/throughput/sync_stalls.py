"""sync-stalls: the host waits for the device in every step, and the device then waits for the host."""

from __future__ import annotations

from typing import Final

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
    place,
    recurring,
    share,
    span,
)
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, percent, quantity


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    device = summary.device
    assert device is not None
    if not summary.counted:
        return Skipped("no steps were found in the trace, so waits cannot be counted per step")
    steps = max(len(summary.number), 1)
    calls = sum(call.count for call in summary.syncs) / steps
    time = saving.of_fewer_waits(device)
    value = recurring(summary, time)
    if calls < limits["calls"] or value < limits["stalled"]:
        return Passed(
            f"{quantity(calls, 'waits')} for the device per step: without them a step would be "
            f"{percent(value).removeprefix('under ')} shorter at most"
        )
    first, last = span(summary)
    worst = summary.syncs[0]
    cost = lost(summary, float(time.sum()))
    inside = f" inside {worst.operator}" if worst.operator else ""
    return [
        Finding(
            rule="sync-stalls",
            severity="warning",
            confidence="likely",
            title=f"The host stops for the device {quantity(calls, 'times')} per step, and the device then runs dry",
            summary=(
                "After each such wait the device's queue is empty, and stays so until the host has launched the next "
                f"work: without them {duration(summary.window / MICROSECONDS)} would be up to "
                f"{duration(cost.seconds or 0)} shorter. Most of it goes into {worst.name}{inside} ({worst.count} "
                "calls)."
            ),
            fix=(
                "Do not read values from the device in every step: keep loss and metrics as tensors, call .item(), "
                ".cpu() or print only every hundred steps, and remove torch.cuda.synchronize() from the loop."
            ),
            fix_code="if step % 100 == 0:\n    print(loss.item())",
            first_step=first,
            last_step=last,
            evidence=[
                measured("predicted saving, at most", value, limits, "stalled"),
                Evidence(
                    "device idle after waits", round(share(summary, device.after_sync), 4), "share", of="the step"
                ),
                Evidence("host inside waits", round(share(summary, device.waited), 4), "share", of="the step"),
                Evidence("synchronising calls", round(calls, 2), "per step", *limits.against("calls")),
            ],
            cost=cost,
            location=place(worst),
            charts=charts(summary, job),
        )
    ]


RULE: Final = TraceRule(
    id="sync-stalls",
    family="throughput",
    severity="warning",
    title="The host waits for the device in every step",
    about=(
        "Looks for idle gaps of the device that begin while the host is inside a synchronising call (stream, device "
        "or event synchronize, blocking copies), and adds up how long the device then stays idle. Counts only the "
        "time by which the host would have been ahead without the wait: a host that is late anyway does not count."
    ),
    check=on_device(check),
    verify="Profile a few steps again: the host waits for the device once per step or less.",
    thresholds=(
        *ENOUGH,
        Threshold(
            "stalled",
            0.1,
            "share of the step",
            "derived: as for waiting for data, a tenth of the step is worth a change",
        ),
        Threshold(
            "calls", 0.5, "per step", "derived: a call in every second step is the loop's own; rarer ones are logging"
        ),
    ),
    not_when="the host waits once per logging interval, or has queued enough work before",
    references=("https://pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",),
)
