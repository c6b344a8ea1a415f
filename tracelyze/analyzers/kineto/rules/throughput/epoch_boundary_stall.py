"""epoch-boundary-stall: the first batch of an epoch takes far longer than the others, and the device waits for it."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.attribution import CAUSES
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.rule import (
    ENOUGH,
    MICROSECONDS,
    PROFILED,
    Job,
    TraceRule,
    charts,
    on_any_trace,
    place,
    too_short,
)
from tracelyze.analyzers.kineto.timeline.table import median
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding
from tracelyze.formatting import duration, listed, percent, plural

FIX: Final = "Keep the workers between epochs, so that they are not restarted and do not get a new copy of the dataset."


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    waits = summary.device.cause("input") if summary.device is not None else None
    if waits is None:
        waits = None if summary.host is None else np.asarray(summary.host[:, CAUSES.index("input")])
    if waits is None or not summary.counted:
        return Skipped("no steps were found whose waits for data could be compared")
    if reason := too_short(summary, limits):
        return Skipped(reason)
    usual = median(waits)
    begins = np.flatnonzero(summary.epoch_starts)
    begins = begins[begins > 0]
    stalls = begins[waits[begins] - usual >= max(limits["stall"] * MICROSECONDS, limits["longer"] * usual)]
    if len(begins) < limits["boundaries"]:
        return Passed(f"{plural(len(begins), 'epoch')} began within the trace: too few to know what an epoch takes")
    if len(stalls) < limits["half"] * len(begins):
        waited = duration(limits["stall"])
        return Passed(f"{len(stalls)} of {plural(len(begins), 'epoch')} began with over {waited} of waiting")
    epoch = slice(int(begins[0]), int(begins[-1]))  # whole epochs: from one boundary to another
    excess = float(np.maximum(waits[begins[:-1]] - usual, 0.0).sum())
    value = excess / max(float(summary.duration[epoch].sum()), 1e-9)
    if value < limits["lost"]:
        return Passed(f"first batches of epochs cost {percent(value)} of the time, below {percent(limits['lost'])}")
    longest = float(waits[stalls].max())
    numbers = listed((int(step) for step in summary.number[stalls]), most=5)
    return [
        Finding(
            rule="epoch-boundary-stall",
            severity="warning",
            confidence="likely",
            title=f"The first batch of an epoch took {duration(longest / MICROSECONDS)} instead of "
            f"{duration(usual / MICROSECONDS)}: "
            f"{percent(value)} of the time",
            summary=(
                f"Steps {numbers} waited up to {duration(longest / MICROSECONDS)} for their batch, the median step "
                f"{duration(usual / MICROSECONDS)}; they are {int(np.diff(begins)[0])} steps apart. That is "
                f"{percent(value)} of the time of an epoch."
            ),
            fix=FIX,
            fix_code="# its other arguments (batch_size, shuffle) stay as they are:\n"
            "loader = DataLoader(dataset, num_workers=4, persistent_workers=True)",
            first_step=int(summary.number[stalls[0]]),
            last_step=int(summary.number[stalls[-1]]),
            evidence=[
                Evidence(
                    "time lost to first batches", round(value, 4), "share", *limits.against("lost"), of="an epoch"
                ),
                Evidence("longest wait", round(longest / 1e3, 3), "ms"),
                Evidence("median wait", round(usual / 1e3, 3), "ms"),
            ],
            cost=Cost(round(excess / MICROSECONDS, 6), round(value, 4), PROFILED),
            location=place(summary.loaders[0] if summary.loaders else None),
            charts=charts(summary, job),
        )
    ]


RULE: Final = TraceRule(
    id="epoch-boundary-stall",
    family="throughput",
    severity="warning",
    title="Every epoch begins with a stall",
    about=(
        "Looks for steps with one extra call to the loader, because it had reached its end, and compares their wait "
        "with that of the others."
    ),
    check=on_any_trace(check),
    verify="Profile a few steps again: the first batch of an epoch comes about as fast as the others.",
    thresholds=(
        *ENOUGH,
        Threshold("stall", 0.1, "s", "derived: starting a process takes about as long; less is a slow batch"),
        Threshold("boundaries", 2, "boundaries", "derived: one long wait may be anything; two show an epoch's length"),
        Threshold("lost", 0.05, "share of an epoch", "derived: below a twentieth nothing is worth a change"),
        Threshold("longer", 10, "times the median", "derived: batches of varying length stay below"),
        Threshold("half", 0.5, "share of the boundaries", "derived: a habit of the loader, not an accident or two"),
    ),
    not_when="the first batch of all, one slow batch, workers that stay (persistent_workers)",
    references=("https://pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",),
)
