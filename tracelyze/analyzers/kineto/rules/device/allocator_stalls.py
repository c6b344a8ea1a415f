"""allocator-stalls: the device is idle while the host is inside the device's allocator."""

from __future__ import annotations

from typing import Final

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
    place,
    recurring,
    share,
    span,
)
from tracelyze.analyzers.rule import Limits, Outcome, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, percent


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    device = summary.device
    assert device is not None
    time = device.cause("allocator")
    value = recurring(summary, time)
    if value < limits["allocating"]:
        return passed_below("device idle during allocation calls", value, limits, "allocating")
    first, last = span(summary)
    calls = sum(call.count for call in summary.allocations)
    cost = lost(summary, float(time.sum()))
    worst = summary.allocations[0] if summary.allocations else None
    named = sorted({call.name for call in summary.allocations[:10]})
    api = "HIP" if any(name.startswith("hip") for name in named) else "CUDA"
    api = "HIP" if any(name.startswith("hip") for name in named) else "CUDA"
    return [
        Finding(
            rule="allocator-stalls",
            severity="critical" if value >= limits["severe"] else "warning",
            confidence="certain" if summary.counted else "likely",
            title=f"The device is idle {percent(cost.share or 0)} of the time while memory is allocated",
            summary=(
                "The host asks the driver for device memory again and again instead of reusing what it has: "
                f"{per_step(summary, calls, 'calls')} of {' and '.join(named[:3])}, and "
                f"{duration(cost.seconds or 0)} of {duration(summary.window / MICROSECONDS)} during which the "
                "device had nothing to do."
            ),
            fix=(
                f"Keep PyTorch's caching allocator on (unset PYTORCH_NO_{api}_MEMORY_CACHING), take "
                "torch.cuda.empty_cache() out of the loop, and if memory is nearly full, make the batch smaller or set "
                "expandable_segments."
            ),
            fix_code=f"unset PYTORCH_NO_{api}_MEMORY_CACHING\nexport PYTORCH_{api}_ALLOC_CONF=expandable_segments:True",
            first_step=first,
            last_step=last,
            evidence=[
                measured("device idle during allocation calls", value, limits, "allocating"),
                Evidence("allocation calls", calls),
                Evidence("device idle", round(share(summary, device.idle), 4), "share", of="the step"),
            ],
            cost=cost,
            location=place(worst),
            charts=charts(summary, job),
        )
    ]


RULE: Final = TraceRule(
    id="allocator-stalls",
    family="throughput",
    severity="warning",
    title="Device memory is allocated anew in every step",
    about="Adds up the idle time of the device with the launching thread inside cudaMalloc, cudaFree or their kin.",
    check=on_device(check),
    verify="Profile a few steps again: calls that allocate device memory are gone from the steps after the first.",
    thresholds=(
        *ENOUGH,
        Threshold(
            "allocating",
            0.1,
            "share of the step",
            "derived: with the caching allocator a steady step makes no such call at all, so that any share is "
            "avoidable; a tenth of the step is worth a change",
        ),
        Threshold("severe", 0.5, "share of the step", "derived: more time goes into allocation than into all else"),
    ),
    not_when="allocations belong to the first steps",
    references=("https://pytorch.org/docs/stable/notes/cuda.html#memory-management",),
)
