"""dataloader-bottleneck: the training waits for its data a large part of each step, and workers would change that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.throughput import contention, loading_lines, open_files, waiting
from tracelyze.analyzers.computed.throughput import loading_advice as advice
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding, Mark
from tracelyze.formatting import duration, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

SETTINGS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "batch_size", "dataset")


def check(process: Process, limits: Limits) -> Outcome:
    """The measured wait of the training with the most steps, where nothing hides it."""
    on_device = process.device != "cpu" or process.steps.has("device_seconds")
    if on_device and not process.steps.has("device_wait"):
        return Skipped(
            "the model is on a device whose queue may hide the wait, so a timeline of a few steps is needed",
            record="--profile-every 100",
        )
    optimization = process.longest
    seen = waiting.measure(optimization)
    if seen is None:
        return Skipped(f"fewer than {waiting.MIN_STEPS} steps with a known wait were recorded, first batches left out")
    own = waiting.undisturbed(seen)
    sample = limits["sample"] * 1e-6  # seconds
    who = "the device was idle for" if seen.on_device else "a step waited"
    measured = f"{who} {duration(seen.idle)} of {duration(seen.step)} for data ({percent(seen.part)})"
    share = limits["grave" if seen.loader.get("iterable") else "share"]
    if own.share < share or own.idle < limits[_least(seen, limits)]:
        return Passed(measured)
    if not seen.restarts and own.per_sample is not None and own.per_sample < sample:
        return Passed(f"{measured}, but only {duration(own.per_sample)} per sample: handing it over would cost as much")
    if waiting.is_of_others(seen, limits):
        return Passed(f"{measured}, while others held the processors: samples are light")
    cores = cpus if isinstance(cpus := process.facts.get("cpus"), int) else None
    workers = waiting.predict(own, cores, limits["handover"], int(limits["workers"]))
    cheaper = waiting.cheaper(own, sample)
    if seen.restarts:
        return [_finding(optimization, seen, cheaper, "restart", limits)]
    if workers.share >= limits["saving"] and not open_files.reads_all(seen.loader):
        return [_finding(optimization, seen, workers, "workers", limits)]
    if cheaper.share >= limits["saving"] and (own.per_sample or 0) >= limits["costly"] * sample:
        return [_finding(optimization, seen, cheaper, "cheaper", limits)]
    return Passed(f"{measured}, but workers would save only {percent(workers.share)} of the step")


def _finding(
    optimization: Optimization, seen: waiting.Waiting, predicted: waiting.Prediction, way: str, limits: Limits
) -> Finding:
    stream = bool(seen.loader.get("iterable"))
    alone = contention.was_alone(optimization, limits["others"])
    crowd, idle_alone = max(seen.crowded.own, seen.crowded.workers), waiting.share_alone(seen)
    begin = timing.step_at(optimization, int(np.argmax(seen.rows)))
    cost = Cost(*waiting.lost(optimization, seen, predicted))
    # Of the step as it was, what others' use of the processors took included, where that was much.
    gain = predicted.saved / seen.step if seen.step > 0 and crowd >= limits["others"] else predicted.share
    iterated = optimization.process.site(seen.loader.get("site")) or optimization.process.location("loader")
    fix, promise = advice.of(way, replace(predicted, share=gain), optimization.process, seen.loader)
    place = loading_lines.place(optimization.process, seen, predicted, way, limits["grave"])
    live = " The dataset is a stream: if it comes from a live source at a fixed rate, nothing will speed it up."
    return Finding(
        rule=RULE.id,
        severity="info" if waiting.is_light(seen, cost.seconds, limits) else contention.severity(
            crowd, gain, predicted.share >= limits["grave"], waiting.slow(seen, limits), idle_alone, limits),
        confidence="possible" if stream else "certain" if not seen.workers and alone else "likely",
        title=f"{'The device' if seen.on_device else 'Training'} waits for data {percent(seen.part)} of the time: "
        f"{duration(seen.idle)} of {duration(seen.step)} a step",
        summary=(
            f"A step takes {duration(seen.step)} on average, and {advice.waits(seen)} for the next batch "
            f"(num_workers={seen.workers}).{place.told} {promise}{live if stream else ''}"
            + contention.said(crowd, idle_alone, limits)
        ),
        fix=place.fix(fix),
        fix_code=place.example(advice.code(way, predicted, optimization.process, seen.loader)),
        first_step=begin, last_step=timing.last_step(optimization),
        evidence=[
            Evidence("median share of time the device was idle for data" if seen.on_device else
                     "median share of time spent waiting", seen.share, "share", *limits.against("share")),
            Evidence("mean wait per step", seen.idle * 1e3, "ms", limits[_least(seen, limits)] * 1e3,
                     limits.source(_least(seen, limits))),
            Evidence("loading time per sample" + ", at most" * bool(seen.workers),
                     None if seen.per_sample is None else seen.per_sample * 1e6, "us",
                     *limits.against("sample")),
            Evidence("predicted saving per step" + (" on free processors" if crowd >= limits["others"] else ""),
                     predicted.share, "share", *limits.against("saving")),
            Evidence("time without a free processor", crowd, "share"),
            *[Evidence(name, _plain(seen.loader.get(name)), role="setting") for name in SETTINGS],
        ],
        cost=cost,
        location=place.change or iterated,
        seen_at=place.slow or iterated,
        charts=pictures.time_split(optimization, [Mark(float(begin), "steady steps")]),
        diff=None if place.first else advice.edit(way, seen, predicted, optimization.process),
        setting=None if place.first else advice.setting(way, seen, predicted, optimization.process),
        false_alarm="Data that arrive at a fixed rate, or a disk or network already at its limit.",
    )  # fmt: skip


def _least(seen: waiting.Waiting, limits: Limits) -> str:  # a finished batch, too, takes its time on the way
    return "queued" if seen.workers and seen.made < limits["made"] else "handover"


def _plain(value: object) -> str | int | None:
    return value if value is None or (isinstance(value, int) and not isinstance(value, bool)) else str(value)


RULE = Rule(
    id="dataloader-bottleneck",
    family="throughput",
    severity="critical",
    title="Training waits for data",
    about="The loader produces batches more slowly than the model consumes them, so the processor or device sits idle.",
    check=check,
    verify=("Record the run again: steps wait less for data. `tracelyze compare` shows what was gained."),
    excluded=("A busy machine: time in which others held the processors is left out, as are first batches of epochs.",),
    absent="The run uses no DataLoader.",
    needs=(("steps.loader_wait", "steps.seconds"),),
    thresholds=(
        Threshold("share", 0.3, "share", "a V100 training with 33% of its step in the loader gained 21% by workers"),
        Threshold("sample", 50, "us", "indexing tensors in memory takes 10 to 30 us per sample"),
        Threshold("saving", 0.2, "share", "a gain below a fifth is within what the prediction may be wrong by"),
        Threshold("grave", 0.5, "share", "more than half of the time would come back"),
        Threshold("handover", 0.002, "s", "a ready batch from a worker: 1.3 to 1.8 ms measured, 7 ms for 19 MB"),
        Threshold("queued", 0.01, "s", "from a worker on shared cores 20 small rows took up to 5.4 ms, none to make"),
        Threshold("made", 0.005, "s", "derived: passing a batch on takes a worker 2 ms of its processor; this is work"),
        Threshold("others", 0.1, "share", "derived: a tenth of the time, taken by others, makes no third of the step"),
        Threshold("crowd", 0.25, "share", "derived: of a wait beside others' work, what is left may be half too long"),
        Threshold("mostly", 0.5, "share", "derived: from here on the wait is more the machine's than the data's"),
        Threshold("workers", 8, "processes", "beyond eight, start-up and memory grow faster than the gain"),
        Threshold("costly", 2, "", "of `sample`: as much again is the least that cheaper samples can save"),
        Threshold(
            "light", 150, "us", "healthy augmentations took 54 and 105 us a sample, loaders at fault 200 and more"
        ),
        Threshold("lost", 60, "s", "derived: what light samples cost is worth a reader's minute once it is a minute"),
    ),
    not_when="Waits hidden by a device's queue, first batches, small steps on data in memory, busy processors.",
    references=("https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)
