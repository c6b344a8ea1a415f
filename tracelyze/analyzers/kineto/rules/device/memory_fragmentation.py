"""memory-fragmentation: the allocator asks for more device memory although it holds enough that is free."""

from __future__ import annotations

from typing import Final

from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.rule import ENOUGH, Job, TraceRule, charts, lost, on_device, span
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, size


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    use, device = summary.memory, summary.device
    assert device is not None
    if use is None:
        return Skipped("the trace holds no memory totals: profile with profile_memory=True")
    if not summary.counted or use.later < limits["later_steps"]:
        return Skipped("the trace has too few steps, and a fresh start takes new segments too")
    share = use.misfits / use.later
    if share < limits["recurring"] or use.free < limits["free"]:
        return Passed(
            f"{size(use.reserved)} held, up to {size(use.allocated)} in tensors; in {use.misfits} of the last "
            f"{use.later} steps a new segment was taken although enough was free"
        )
    first, last = span(summary)
    gap = 1 - use.allocated / max(use.reserved, 1)
    again = f", and gave {use.retries} back to the driver to make room" if use.retries else ""
    return [
        Finding(
            rule="memory-fragmentation",
            severity="warning",
            confidence="likely",
            title=f"Device memory is fragmented: {percent(gap)} of what is held was never used",
            summary=(
                f"The allocator holds {size(use.reserved)}, of which tensors took {size(use.allocated)} at most. "
                f"In {use.misfits} of the last {use.later} steps it took {use.segments} new segments from the driver "
                f"although at least {percent(use.free)} of its memory was free, in pieces that did not fit{again}."
            ),
            fix=(
                "Let segments grow (expandable_segments), pad or bucket inputs of varying size so that blocks fit "
                "again, and keep no small tensors alive between large ones."
            ),
            fix_code="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # PYTORCH_HIP_ALLOC_CONF on AMD",
            first_step=first,
            last_step=last,
            evidence=[
                Evidence("later steps that took a new segment", round(share, 4), "share", *limits.against("recurring")),
                Evidence("free at those times", round(use.free, 4), "share", *limits.against("free")),
                Evidence("held and never used", round(gap, 4), "share"),
                Evidence("segments given back", use.retries),
            ],
            cost=lost(summary, float(device.cause("allocator").sum())),
            charts=charts(summary, job),
            false_alarm="A training whose inputs still grow takes new segments until the longest one has come.",
        )
    ]


RULE: Final = TraceRule(
    id="memory-fragmentation",
    family="memory",
    severity="warning",
    title="Device memory is fragmented",
    about=(
        "Looks for segments of 20 MiB or more that the caching allocator takes in the later half of the steps while it "
        "holds more free memory than that: memory that is there and cannot be used."
    ),
    check=on_device(check),
    verify="Profile a few steps again: the later steps take no new segments.",
    thresholds=(
        *ENOUGH,
        Threshold("later_steps", 2, "steps", "derived: one step may meet the longest input so far"),
        Threshold("recurring", 0.5, "share", "derived: most steps; a single longest batch is no fault"),
        Threshold("free", 0.1, "share", "derived: rounding to blocks and streams of their own leave a few percent"),
    ),
    not_when="the first steps, which build up the memory; held memory that an earlier, larger phase needed",
    references=("https://pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf",),
)
