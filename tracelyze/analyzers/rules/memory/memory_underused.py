"""memory-underused: a device that is busy all the time has most of its memory free: a larger batch would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.optimization import capacity
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """The peak beside the device's size, where the driver says that kernels ran nearly all of the time."""
    found = capacity.of(process)
    if found is None:
        return Skipped("no device memory, or its size, was recorded", "not-applicable")
    share = found.peak / found.total
    if share >= limits["share"]:
        return Passed(f"tensors took up to {percent(share)} of the device's {size(found.total)}")
    if found.seconds < limits["worth"]:
        return Passed("the run was short, and how it uses a device says little")
    if found.busy is None:
        return Skipped("how busy the device was is not known: it needs nvidia-ml-py")
    if found.busy < limits["busy"]:
        return Passed(f"the device was busy for {percent(found.busy)} of the time: its memory is not what is short")
    return [
        Finding(
            rule=RULE.id,
            severity="info",
            confidence="likely",
            title=f"Tensors never took more than {percent(share)} of the device's memory",
            summary=(
                f"At their peak tensors took {size(found.peak)} of {size(found.total)}, while the device was busy for "
                f"{percent(found.busy)} of the time. A larger batch may use the device better, with the learning rate "
                "adjusted to match."
            ),
            fix="Try twice the batch size with a learning rate to match, and compare samples per second.",
            evidence=[
                Evidence("peak over capacity", share, "share", *limits.against("share"), role="most"),
                Evidence("device busy", found.busy, "share", *limits.against("busy"), role="most"),
            ],
            charts=pictures.memory(process.longest, []),
            false_alarm="Batch sizes chosen for their effect on training.",
        )
    ]


RULE = Rule(
    id="memory-underused",
    family="memory",
    severity="info",
    title="Most of the device's memory is free",
    about="If the device is the bottleneck and has free memory, larger batches may use it better.",
    check=check,
    verify="Record the run again: more samples per second.",
    absent="The run trains on no device with memory of its own.",
    needs=(("steps.device_peak",),),
    whole_process=True,
    thresholds=(
        Threshold("share", 0.3, "share", "derived: twice the batch, and then some, fits into the rest"),
        Threshold("busy", 0.9, "share", "derived: a device that waits is short of something else"),
        Threshold("worth", 600, "s", "derived: ten minutes; who tries something out chooses small batches"),
    ),
    not_when="Short runs, devices that wait for data or for the host, CPU training.",
)
