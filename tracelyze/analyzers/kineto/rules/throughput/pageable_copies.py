"""pageable-copies: copies from or to ordinary host memory, which neither overlap nor run at full speed."""

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
    span,
)
from tracelyze.analyzers.rule import Limits, Outcome, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, percent

MOST: Final = "derived: pinned copies that run beside kernels cost nothing; those that must be waited for half as much"


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    copies = summary.pageable
    if not copies.known:
        return Skipped("the trace does not say what kind of host memory its copies use")
    value = copies.exposed_us / max(summary.window, 1e-9)
    if value < limits["copying"]:
        return passed_below("copies of pageable memory that nothing hides", value, limits, "copying")
    first, last = span(summary)
    cost = lost(summary, copies.exposed_us)
    return [
        Finding(
            rule="pageable-copies",
            severity="warning",
            confidence="certain",
            title=f"The device waits {percent(value)} of the time for copies from pageable host memory",
            summary=(
                f"{copies.count} copies between device and pageable host memory took "
                f"{duration(copies.time_us / MICROSECONDS)}, {duration(cost.seconds or 0)} of it while no kernel "
                "ran. Such copies pass through a staging buffer and block the host. Pinned memory saves at most "
                "that, and about half where the next kernel needs the data at once."
            ),
            fix="Use pin_memory=True in the DataLoader and copy with .to(device, non_blocking=True).",
            fix_code="loader = DataLoader(dataset, batch_size=32, pin_memory=True)\n"
            "for x, y in loader:\n    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)",
            first_step=first,
            last_step=last,
            evidence=[
                measured("copies of pageable memory that nothing hides", value, limits, "copying"),
                Evidence("copies", copies.count),
                Evidence("predicted saving, at most", cost.share, "share", None, MOST, of="the step"),
            ],
            cost=cost,
            charts=charts(summary, job),
        )
    ]


RULE: Final = TraceRule(
    id="pageable-copies",
    family="throughput",
    severity="warning",
    title="Copies from pageable memory",
    about="Adds up the time of copies that the profiler marks as pageable while no kernel runs.",
    check=on_device(check),
    verify="Profile a few steps again: copies come from pinned memory and run beside kernels.",
    thresholds=(
        *ENOUGH,
        Threshold(
            "copying",
            0.05,
            "share of the step",
            "derived: pinned memory is about twice as fast, and its copies can overlap; below 5% of the step less "
            "than that is to be gained",
        ),
    ),
    not_when="the copies are pinned, hidden behind kernels, or small",
    references=("https://pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers",),
)
