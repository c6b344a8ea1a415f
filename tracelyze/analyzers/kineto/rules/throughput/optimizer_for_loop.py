"""optimizer-for-loop: the optimizer updates tensor after tensor, and the device waits for it."""

from __future__ import annotations

from typing import Final

from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.rule import (
    ENOUGH,
    Job,
    TraceRule,
    charts,
    lost,
    measured,
    on_device,
    passed_below,
    recurring,
    span,
)
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, percent, plural

FUSED: Final = ("SGD", "Adam", "AdamW", "Adagrad")
FOREACH: Final = ("Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Optimizers of torch.optim that have such a form."""


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    device, optimizer = summary.device, summary.optimizer
    assert device is not None
    if optimizer is None:
        return Skipped("the trace does not mark the optimizer's steps")
    launches = optimizer.launches / optimizer.steps
    at_once = optimizer.at_once / max(optimizer.launches, 1)
    own = optimizer.device_us / max(optimizer.launches, 1)
    if launches < limits["launches"] or at_once > limits["at_once"] or own > limits["tiny"]:
        return Passed(
            f"{optimizer.name} launches {plural(round(launches), 'kernel')} per step, {percent(at_once)} of them for "
            f"many tensors, of {duration(own * 1e-6)} each"
        )
    time = device.cause("optimizer")
    value = recurring(summary, time)
    if value < limits["waiting"]:
        return passed_below(f"device idle while {optimizer.name} goes from tensor to tensor", value, limits, "waiting")
    first, last = span(summary)
    host = optimizer.host_us / optimizer.steps
    fused = "fused" if optimizer.name in FUSED else "foreach"
    return [
        Finding(
            rule="optimizer-for-loop",
            severity="info",
            confidence="likely",
            title=f"{optimizer.name} updates one tensor at a time: {launches:,.0f} small kernels per step",
            summary=(
                f"The host needs {duration(host * 1e-6)} for each step of {optimizer.name}, the device "
                f"{duration(own * launches * 1e-6)} for the work in it, and is idle for {percent(value)} of the "
                "whole step meanwhile. An optimizer that updates all tensors in a few kernels saves at most that."
            ),
            fix="Pass fused=True to the optimizer, or foreach=True where it has no fused form. Keep its other "
            "arguments.",
            fix_code=f"optimizer = torch.optim.{optimizer.name}(model.parameters(), lr=lr, {fused}=True)"
            if optimizer.name in FUSED + FOREACH
            else "",
            first_step=first,
            last_step=last,
            evidence=[
                measured("device idle inside the optimizer", value, limits, "waiting"),
                Evidence("launches", round(launches, 1), "per step", *limits.against("launches")),
                Evidence("length of each", round(own, 2), "us", *limits.against("tiny"), role="most"),
                Evidence("of them for many tensors at once", round(at_once, 4), "share", role="basis"),
                Evidence("host inside it", round(optimizer.host_us / summary.window, 4), "share", of="the step"),
            ],
            cost=lost(summary, float(time.sum())),
            charts=charts(summary, job),
            false_alarm="Optimizers without a foreach or fused form, and sparse gradients.",
        )
    ]


RULE: Final = TraceRule(
    id="optimizer-for-loop",
    family="throughput",
    severity="info",
    title="The optimizer updates one tensor at a time",
    about="Counts the kernels launched inside Optimizer.step, and the time that the device is idle meanwhile.",
    check=on_device(check),
    verify="Profile a few steps again: the optimizer launches a few kernels per step.",
    thresholds=(
        *ENOUGH,
        Threshold(
            "waiting",
            0.05,
            "share of the step",
            "measured: 483 launches of a ResNet50's SGD leave the device idle for 2 to 4% of the step, which nobody "
            "would notice",
        ),
        Threshold("launches", 100, "per step", "measured: foreach and fused optimizers need 1 to 9 on real traces"),
        Threshold("tiny", 20, "us", "derived: a launch takes the host 5 to 20 us; longer kernels keep the device busy"),
        Threshold("at_once", 0.1, "share", "derived: a foreach optimizer may do a few tensors apart, not most"),
    ),
    not_when="a foreach, fused or compiled optimizer; few tensors; a loop that hides behind queued work",
    references=("https://pytorch.org/docs/stable/optim.html#algorithms",),
)
