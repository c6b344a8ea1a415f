"""epoch-boundary-stall: the first batch of every epoch takes far longer than the others, because workers start anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.throughput import contention, kept_workers, loaders_made_once
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding, Mark
from tracelyze.formatting import duration, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats

SETTINGS = ("num_workers", "persistent_workers", "prefetch_factor", "length", "dataset")


def check(process: Process, limits: Limits) -> Outcome:
    """The training with the most steps: the wait at each new iterator of its loader against the usual wait."""
    optimization = process.longest
    steps = optimization.steps
    on_device = process.device != "cpu" and steps.has("device_wait")
    wait = np.minimum(steps["device_wait"], steps["loader_wait"]) if on_device else steps["loader_wait"]
    seconds = steps["seconds"]
    net = seconds - validation.seconds_within_steps(process, steps["time"], seconds)
    known = np.isfinite(wait) & np.isfinite(net)
    first = known & (steps["loader_first"] == 1)
    first[: int(np.argmax(known)) + 1] = False  # the start of the run is no boundary
    others = known & ~first
    if first.sum() < limits["boundaries"]:
        began = plural(int(first.sum()), "epoch")
        return Skipped(f"{began} began after the first; {limits['boundaries']:.0f} are needed")
    if others.sum() <= first.sum():
        return Passed("the loader's iterator is made anew in most steps, which dataloader-bottleneck judges")
    usual, typical = float(np.median(wait[others])), float(np.median(net[others]))
    excess = np.clip(np.minimum(wait - usual, net - typical), 0.0, None)
    crowded = contention.shares(optimization)  # what others held the processors for is no fault of the loader
    alone = 1.0 - max(crowded.own, crowded.workers)
    middle = float(np.median(excess[first]))
    begun = int(np.argmax(first))
    lost = float(excess[first].sum()) / max(float(net[begun:][known[begun:]].sum()), 1e-9)
    measured = f"from the second epoch on, first batches wait {duration(middle)} longer than others: "
    measured += f"{percent(lost)} of the time"
    if middle * alone < limits["stall"] or lost * alone < limits["lost"]:
        return Passed(measured)
    matters = middle * alone >= limits["long"] or float(excess[first].sum()) * alone >= limits["worth"]
    whole = float(excess[first].sum()) / max(float(np.nansum(seconds)), 1e-9)
    return [_finding(optimization, np.where(first, excess, 0.0), usual, (lost, whole, matters), limits)]


def _finding(
    optimization: Optimization, excess: Floats, usual: float, shares: tuple[float, float, bool], limits: Limits
) -> Finding:
    """`shares`: of the time that is lost, from the first such batch on and in all; and whether that is much."""
    lost, whole, matters = shares
    rows = np.flatnonzero(excess)
    middle = float(np.median(excess[rows]))
    loader = optimization.loader
    marks = [Mark(float(timing.step_at(optimization, int(row))), "an epoch begins") for row in rows[:6]]
    renewed = kept_workers.made_anew(optimization, loader, limits["boundaries"])
    remedy = kept_workers.advice(optimization.process, loader, renewed)
    made_at = optimization.process.site(loader.get("made_at"))
    called_at = loaders_made_once.assigned(optimization.process, loader) if renewed else None
    iterated = optimization.process.site(loader.get("site")) or optimization.process.location("loader")
    return Finding(
        rule=RULE.id,
        severity="warning" if matters else "info",
        confidence="certain" if loader else "likely",
        title=f"{plural(len(rows), 'epoch')} waited {duration(float(excess.sum()))} in all for first batches: "
        f"{percent(whole)} of the time",
        summary=f"The first batch of {plural(len(rows), 'epoch')} came late: after {duration(middle + usual)} in the "
        f"median, where others take {duration(usual)}.{remedy.why}" + ("" if matters else LITTLE),
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=timing.step_at(optimization, int(rows[0])),
        last_step=timing.step_at(optimization, int(rows[-1])),
        first_second=timing.second_at(optimization, int(rows[0])),
        evidence=[
            Evidence(
                "lost to first batches, of the time from the second epoch on", lost, "share", *limits.against("lost")
            ),
            Evidence("median wait beyond the usual", middle * 1e3, "ms", limits["stall"] * 1e3, limits.source("stall")),
            Evidence("epochs", len(rows), "", *limits.against("boundaries")),
            *[Evidence(name, str(loader[name]), role="setting") for name in SETTINGS if loader.get(name) is not None],
        ],
        cost=Cost(float(excess.sum()), whole),
        location=(called_at or made_at if remedy.code else None) or iterated,
        seen_at=iterated,
        charts=pictures.time_split(optimization, marks),
        diff=None if renewed else kept_workers.edit(optimization.process, loader),
        setting=None if renewed else kept_workers.setting(optimization.process, loader),
        false_alarm="A planned pause between epochs, or a dataset that is rebuilt for each epoch on purpose.",
    )


LITTLE = " Only a few seconds are lost in total, and with longer epochs the share is smaller: just a note."
RULE = Rule(
    id="epoch-boundary-stall",
    family="throughput",
    severity="warning",
    title="Every epoch begins with a stall",
    about="Compares the wait for the first batch of each pass over the loader with the wait for the others.",
    check=check,
    settings=("dataloader_num_workers",),
    verify="Record the run again: the first batch of an epoch comes about as fast as the others.",
    excluded=(
        "The first batch of the run is left out.",
        "A busy machine: time in which other programs held the processors is left out.",
    ),
    absent="The run uses no DataLoader.",
    needs=(("steps.loader_wait", "steps.loader_first", "steps.seconds"),),
    thresholds=(
        Threshold("boundaries", 3, "epochs", "derived: two may have met the same hiccup of the machine"),
        Threshold("stall", 0.1, "s", "derived: starting a process takes about as long; less is a slow batch"),
        Threshold("lost", 0.05, "share", "derived: below a twentieth of the time nothing is worth a change"),
        Threshold("worth", 5, "s", "measured: two workers start in 0.2 s; ten short epochs lose 2 s by that"),
        Threshold("long", 0.5, "s", "measured: on busy cores two workers start in 0.25 s; twice that is more"),
    ),
    not_when="The first batch of the run, persistent workers, waits that the device's queue hides, crowded processors.",
    references=("https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",),
)
