"""host-bound: the device is idle because the host cannot launch work fast enough."""

from __future__ import annotations

from typing import Final

import numpy as np

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
    per_step,
    recurring,
    share,
    span,
    too_few_gaps,
    usual,
)
from tracelyze.analyzers.rule import Limits, Outcome, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, percent

MOST: Final = "derived: work that is queued in time removes this idle time and nothing of the device's own work"
HOST_WORK: Final = ("garbage", "optimizer", "launch", "operator", "python")


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    device = summary.device
    assert device is not None
    time = np.sum([device.cause(name) for name in HOST_WORK], axis=0)
    value = min(recurring(summary, time), usual(summary, time))  # in most steps: single slow ones are another fault
    if value < limits["host_work"]:
        return passed_below("device idle while the host prepares the next launch", value, limits, "host_work")
    first, last = span(summary)
    optimizer = share(summary, device.cause("optimizer"))
    cost = lost(summary, float(time.sum()))
    blurred = (
        " Python stacks were recorded, which itself slows the host down: the true share is smaller."
        if summary.stacks
        else ""
    )
    fix = (
        "Give the device larger chunks of work: torch.compile (mode='reduce-overhead' uses CUDA graphs), a larger "
        "batch, fewer and larger operators."
    )
    if optimizer >= limits["much"] * value:
        fix += " Much of it is the optimizer: pass fused=True or foreach=True to it."
    if share(summary, device.cause("garbage")) >= limits["much"] * value:
        fix += " Much of it is garbage collection: no gc.collect() in the loop, and gc.freeze() before it."
    return [
        Finding(
            rule="host-bound",
            severity="warning",
            confidence="possible"
            if summary.stacks or not summary.counted or len(summary.number) < limits["fewest_steps"]
            else "likely",
            title=f"The device is idle {percent(cost.share or 0)} of the time: the host launches work too slowly",
            summary=(
                "The device's queue ran empty while Python and PyTorch prepared the next kernel: "
                f"{duration(cost.seconds or 0)} of {duration(summary.window / MICROSECONDS)}.{blurred}"
            ),
            fix=fix,
            fix_code="model = torch.compile(model)  # before the loop; then mode='reduce-overhead' for CUDA graphs",
            first_step=first,
            last_step=last,
            evidence=[
                measured("device idle while the host prepares the next launch", value, limits, "host_work"),
                Evidence("device idle", round(share(summary, device.idle), 4), "share", of="the step"),
                Evidence("predicted saving, at most", cost.share, "share", None, MOST, of="the step"),
                Evidence("of it in the optimizer", round(optimizer, 4), "share", of="the step"),
                Evidence("device activities", per_step(summary, device.activities, "device activities")),
                Evidence("a kernel takes, on average", duration(_typical(summary) / MICROSECONDS)),
            ],
            cost=cost,
            charts=charts(summary, job),
            false_alarm="The profiler slows the host by microseconds per operator, which makes this look worse.",
        )
    ]


def _typical(summary: TraceSummary) -> float:
    count = sum(kernel.count for kernel in summary.kernels)
    return sum(kernel.time_us for kernel in summary.kernels) / max(count, 1)


RULE: Final = TraceRule(
    id="host-bound",
    family="throughput",
    severity="warning",
    title="The host launches work too slowly",
    about=(
        "Adds up the idle time of the device in which the launching thread was inside operators, the optimizer, "
        "launch calls, Python code or garbage collection, and not inside the data loader, a synchronisation, an "
        "allocation or a collective."
    ),
    check=on_device(check, too_few_gaps),  # the gaps between kernels are counted, not their milliseconds
    verify="Profile a few steps again: the device is busy for more of the step.",
    thresholds=(
        *ENOUGH,
        Threshold(
            "host_work",
            0.2,
            "share of the step",
            "measured: on traces of a ResNet50 that is bound by its kernels, the profiler's own cost per operator "
            "leaves 7 to 15% of such idle time; the threshold lies above that",
        ),
        Threshold("much", 0.25, "of the idle time", "derived: a quarter is worth a sentence of its own in the fix"),
    ),
    not_when="the kernels come from CUDA graphs, or the queue is kept filled",
    references=("https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",),
)
