"""The device waits at the start of every step while the loop itself prepares it: a part of dataloader-bottleneck."""

from __future__ import annotations

from tracelyze.analyzers.kineto.rule import Job, charts, lost, measured, share, span, usual
from tracelyze.analyzers.kineto.summary import TraceSummary
from tracelyze.analyzers.rule import Limits
from tracelyze.analyzers.words import percent
from tracelyze.diagnosis import Finding


def prepared_on_the_host(summary: TraceSummary, job: Job, limits: Limits) -> list[Finding]:
    """A finding if in the typical step the device waits long for its first work, else none."""
    device = summary.device
    if device is None or not summary.counted:
        return []
    preparation = device.cause("preparation")
    value = min(usual(summary, preparation), share(summary, preparation))
    if value < limits["preparing"]:
        return []
    first, last = span(summary)
    cost = lost(summary, float(preparation.sum()))
    return [
        Finding(
            rule="dataloader-bottleneck",
            severity="warning",
            confidence="possible",
            title=f"The device waits {percent(cost.share or 0)} of the time for the host to prepare the step",
            summary=(
                "In every step the host works before it gives the device anything to do. The trace shows no data "
                "loader call there, so this is code of the training loop itself, most often preparing the batch."
            ),
            fix="Prepare the batch in the Dataset or its collate function, and load in worker processes.",
            first_step=first,
            last_step=last,
            evidence=[measured("host work before the first kernel of the step", value, limits, "preparing")],
            cost=cost,
            charts=charts(summary, job),
            false_alarm="Other work before the first kernel, such as logging, counts here too.",
        )
    ]
