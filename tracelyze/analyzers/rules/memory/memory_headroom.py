"""memory-headroom: memory of the device is all but used up: the next larger batch ends the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.optimization import capacity
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, size, times

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """The peak of what tensors took, beside the device's size; and whether batches vary."""
    found = capacity.of(process)
    if found is None:
        return Skipped("no device memory, or its size, was recorded", "not-applicable")
    share = found.peak / found.total
    if share < limits["share"]:
        return Passed(f"tensors took up to {percent(share)} of the device's {size(found.total)}")
    retries = f" The allocator was refused memory {times(int(found.retries))}." if found.retries else ""
    return [
        Finding(
            rule=RULE.id,
            severity="info",
            confidence="certain",
            title=f"Tensors take up to {percent(share)} of the device's memory: {size(found.total - found.peak)} left",
            summary=(
                f"At their peak tensors took {size(found.peak)} of {size(found.total)}. A longer sequence, a larger "
                f"batch or an evaluation can run out of memory.{retries}"
            ),
            fix="Use a smaller batch with accumulation, use activation checkpointing, or limit the input length.",
            evidence=[Evidence("peak over capacity", share, "share", *limits.against("share"))],
            charts=pictures.memory(process.longest, []),
            false_alarm="Fixed-shape batches in a run that has already seen its largest.",
        )
    ]


RULE = Rule(
    id="memory-headroom",
    family="memory",
    severity="info",
    title="Device memory is nearly used up",
    about="Compares the peak memory of tensors with the device's memory.",
    check=check,
    verify="Record the run again: the peak leaves a few percent of the device's memory free.",
    absent="The run trains on no device with memory of its own.",
    excluded=("Memory that only the allocator holds: what tensors took is counted.",),
    needs=(("steps.device_peak",),),
    whole_process=True,
    thresholds=(
        Threshold("share", 0.95, "share", "derived: context, libraries and collectives take the last twentieth"),
    ),
    not_when="Memory that only the allocator holds, CPU training.",
)
