"""memory-fragmentation: the device's driver refuses memory again and again although the allocator holds enough free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding, Mark
from tracelyze.formatting import duration, percent, plural, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats


def check(process: Process, limits: Limits) -> Outcome:
    """The training with the most steps: retries of the allocator after its warm-up, and what was free meanwhile."""
    optimization = process.longest
    retries, held, used = (optimization.steps[name] for name in ("device_retries", "device_reserved", "device_peak"))
    warm_up = int(limits["warm_up"])
    if len(retries) <= warm_up:
        return Skipped(f"the run has {plural(len(retries), 'step')}, and a fresh start may meet the limit once")
    counted = np.maximum.accumulate(np.nan_to_num(retries))  # A count; quick steps are not all read.
    more = np.append(0.0, np.diff(counted))
    rows = np.flatnonzero((more > 0) & (np.arange(len(more)) >= warm_up))
    half = warm_up + (len(retries) - warm_up) // 2
    if len(rows) < limits["fewest"] or rows[-1] < half:
        return Passed(f"the driver refused memory in {plural(len(rows), 'step')} after the first {warm_up}")
    most_held, most_used = float(np.nanmax(held[warm_up:])), float(np.nanmax(used))
    free = 1 - most_used / max(most_held, 1.0)
    if free < limits["free"]:
        return Passed(
            f"the driver refused memory in {plural(len(rows), 'step')}, and {percent(1 - free)} of what is held is "
            "needed: the memory is full, not fragmented"
        )
    return [_finding(optimization, rows, more, (most_held, most_used, free), limits)]


def _finding(
    optimization: Optimization,
    rows: npt.NDArray[np.signedinteger],
    more: Floats,
    sizes: tuple[float, float, float],
    limits: Limits,
) -> Finding:
    held, used, free = sizes
    seconds = optimization.steps["seconds"]
    others = np.delete(seconds, rows)
    usual = float(np.nanmedian(others)) if np.isfinite(others).any() else 0.0
    lost = float(np.nansum(np.maximum(seconds[rows] - usual, 0.0)))
    share = lost / max(float(np.nansum(seconds)), 1e-9)
    steps = [timing.step_at(optimization, int(row)) for row in rows]
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Device memory is fragmented: allocations failed and were retried in {plural(len(rows), 'step')}",
        summary=(
            f"PyTorch held up to {size(int(held))} of device memory, but tensors never used more than "
            f"{size(int(used))}. Still, it asked for more {int(more[rows].sum()):,} times, was refused, released all "
            f"free blocks and tried again, which waits for the device. These steps took {duration(lost)} longer than "
            "the others. The free memory is in pieces that are too small, most likely because lengths or batch sizes "
            "vary."
        ),
        fix="Turn on expandable segments for the allocator in the run's environment, and pad inputs to a few fixed "
        "lengths.",
        fix_code="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        first_step=steps[0],
        last_step=steps[-1],
        first_second=timing.second_at(optimization, int(rows[0])),
        evidence=[
            Evidence("steps with a refusal", len(rows), "steps", *limits.against("fewest")),
            Evidence("refusals", int(more[rows].sum())),
            Evidence("held and never used", round(free, 4), "share", *limits.against("free")),
        ],
        cost=Cost(round(lost, 3), round(share, 4)),
        charts=pictures.memory(optimization, [Mark(float(step), "refused") for step in steps[:6]]),
        false_alarm="Other programs on the same device that take memory and release it.",
    )


RULE = Rule(
    id="memory-fragmentation",
    family="memory",
    severity="warning",
    title="Device memory is fragmented",
    about=(
        "Counts the steps in which the device's driver refused memory, so that the caching allocator gave its free "
        "blocks back and tried again, and compares what it held with what was ever in tensors."
    ),
    check=check,
    verify="Record the run again: no step after the tenth retries an allocation.",
    absent="The run uses no device memory.",
    needs=(("steps.device_retries", "steps.device_reserved", "steps.device_peak"),),
    thresholds=(
        Threshold("warm_up", 10, "steps", "derived: the first steps, and the search for fast kernels, fill the memory"),
        Threshold("fewest", 3, "steps", "derived: once or twice a single long batch meets the limit"),
        Threshold("free", 0.1, "share", "derived: rounding to blocks and streams of their own leave a few percent"),
    ),
    not_when="Refusals in the first steps only, or memory that is really in use.",
    references=("https://pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf",),
)
