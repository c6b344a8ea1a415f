"""Data that no loader brings: batches that the loop itself prepares, and hosts of which the trace shows nothing."""

from __future__ import annotations

from typing import Final

from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.rule import Job, charts, lost, measured, recurring, share, span, usual
from tracelyze.analyzers.rule import Limits, Skipped
from tracelyze.diagnosis import Finding
from tracelyze.formatting import percent

SEEN: Final = (
    "The trace shows no data loader call there, so this is code of the training loop itself, most often preparing the "
    "batch."
)
UNSEEN: Final = (
    "The trace does not show what the host does there, only that it launches nothing: it waits for the data loader, or "
    "prepares the batch. Profile the host too (ProfilerActivity.CPU)."
)


def prepared_on_the_host(summary: TraceSummary, job: Job, limits: Limits) -> list[Finding]:
    """A finding if in the typical step the device waits long for its first work, else none."""
    device = summary.device
    if device is None or not summary.counted:
        return []
    preparation = device.cause("preparation")
    value = min(usual(summary, preparation), share(summary, preparation))
    if value < limits["preparing"]:
        return []
    seen = bool(summary.operators or summary.loaders)
    first, last = span(summary)
    cost = lost(summary, float(preparation.sum()))
    return [
        Finding(
            rule="dataloader-bottleneck",
            severity="warning",
            confidence="possible",
            title=f"The device is idle {percent(cost.share or 0)} of the time until the host begins the step's work",
            summary=(
                f"In every step the host works before it gives the device anything to do. {SEEN if seen else UNSEEN}"
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


def not_to_be_seen(summary: TraceSummary, limits: Limits) -> Skipped | None:
    """Why nothing can be said of the loader: the host did something unknown while the device waited."""
    if summary.device is None or summary.loaders:
        return None
    unknown = recurring(summary, summary.device.cause("unrecorded"))
    if unknown < limits["waiting"]:
        return None
    return Skipped(
        f"the trace holds no call of a data loader, and nothing of the host for {percent(unknown)} of the steps, in "
        "which the device waited; profile the host too (ProfilerActivity.CPU)"
    )
