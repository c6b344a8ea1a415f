"""dataloader-bottleneck: the training waits for its data a large part of each step, and workers would change that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import pictures, waiting
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.words import duration, percent
from tracelyze.diagnosis import Cost, Evidence, Finding, Mark

if TYPE_CHECKING:
    from tracelyze.analyzers.run import Process, Training

SETTINGS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "batch_size", "dataset")


def check(process: Process, limits: Limits) -> Outcome:
    """The measured wait of the training with the most steps, where nothing hides it."""
    if process.device != "cpu" or process.steps.has("device_seconds"):
        return Skipped(
            "the model is on a device whose queue may hide the wait: whether the device itself idles for data takes a "
            "profiler trace"
        )
    training = max(process.trainings, key=lambda one: len(one.steps))
    seen = waiting.measure(training)
    if seen is None:
        return Skipped(f"fewer than {waiting.MIN_STEPS} steps with a known wait beyond the first batches")
    told = f"a step waits {duration(seen.wait)} of {duration(seen.step)} for data ({percent(seen.share)} in all)"
    cpus = process.facts.get("cpus")
    predicted = waiting.predict(
        seen, cpus if isinstance(cpus, int) else None, limits["handover"], int(limits["workers"])
    )
    if seen.share < limits["share"] or seen.wait < limits["wait"]:
        return Passed(told)
    if seen.per_sample is not None and seen.per_sample < limits["sample"] * 1e-6:
        return Passed(f"{told}, but only {duration(seen.per_sample)} per sample: handing it over would cost as much")
    if predicted.share < limits["saving"]:
        return Passed(f"{told}, but workers would save only {percent(predicted.share)} of it")
    return [_finding(training, seen, predicted, limits)]


def _finding(training: Training, seen: waiting.Waiting, predicted: waiting.Prediction, limits: Limits) -> Finding:
    now = int(seen.loader.get("num_workers") or 0)
    stream, cheaper = bool(seen.loader.get("iterable")), now > 0 and predicted.workers <= now
    begin = int(np.argmax(seen.rows))
    seconds, share = waiting.lost(training, seen, predicted)
    summary = (
        f"In the middle of the run a step takes {duration(seen.step)}, and {duration(seen.wait)} of it is spent "
        "waiting for "
        f"the next batch: {percent(seen.share)} of the training time. The loader works with num_workers={now}. "
    )
    if cheaper:
        fix = "All cores are busy loading: make a sample cheaper (decode or resize once and store it, lighter "
        "transforms)."
        summary += f"Without the wait a step would be {percent(predicted.share)} shorter."
    else:
        fix = f"Load in {predicted.workers} worker processes, so that batches are made while the model computes."
        summary += f"With {predicted.workers} workers a step is predicted to be {percent(predicted.share)} shorter."
    if stream:
        summary += " The dataset is a stream: if it comes from a live source at a fixed rate, nothing makes it faster."
    return Finding(
        rule=RULE.id,
        severity="critical" if predicted.share >= limits["grave"] else "warning",
        confidence="possible" if stream else "likely" if now else "certain",
        title=f"The training waits for data {percent(seen.share)} of its time",
        summary=summary,
        fix=fix,
        fix_code="" if cheaper else _code(seen, predicted),
        first_step=int(np.nan_to_num(training.steps["step"][begin], nan=begin + 1)),
        last_step=int(np.nan_to_num(training.steps["step"][-1], nan=len(training.steps))),
        evidence=[
            Evidence("share of time spent waiting", seen.share, "share", limits["share"], limits.source("share")),
            Evidence("median wait per step", seen.wait * 1e3, "ms", limits["wait"] * 1e3, limits.source("wait")),
            Evidence("median wait per sample", None if seen.per_sample is None else seen.per_sample * 1e6, "us",
                     limits["sample"], limits.source("sample")),
            Evidence("predicted saving per step", predicted.share, "share", limits["saving"], limits.source("saving")),
            *[Evidence(name, _plain(seen.loader.get(name))) for name in SETTINGS],
        ],
        cost=Cost(seconds, share),
        location=training.process.site(seen.loader.get("site")) or training.process.location("loader"),
        charts=pictures.time_split(training, [Mark(float(begin + 1), "steady steps")]),
        false_alarm="Data that arrive at a fixed rate, or a disk or network that is already at its limit.",
    )  # fmt: skip


def _code(seen: waiting.Waiting, predicted: waiting.Prediction) -> str:
    size = seen.loader.get("batch_size")
    batch = f", batch_size={size}" if size else ""
    return f"DataLoader(dataset{batch}, num_workers={predicted.workers}, persistent_workers=True)"


def _plain(value: object) -> str | int | None:
    return value if value is None or (isinstance(value, int) and not isinstance(value, bool)) else str(value)


RULE = Rule(
    id="dataloader-bottleneck",
    family="throughput",
    severity="critical",
    title="The training waits for its data",
    about="Batches are made slower than the model consumes them, so the processor or device stands still in between.",
    check=check,
    needs=(("steps.loader_wait", "steps.seconds"),),
    thresholds=(
        Threshold(
            "share", 0.3, "share", "a V100 training with 33 % of its step in the loader gained 21 % from workers"
        ),
        Threshold("wait", 0.005, "s", "below 5 ms per step, handing batches over takes a real part of it"),
        Threshold("sample", 50, "us", "indexing tensors in memory takes 10 to 30 us per sample"),
        Threshold("saving", 0.2, "share", "a gain below a fifth is within what the prediction may be wrong by"),
        Threshold("grave", 0.5, "share", "more than half of the time would come back"),
        Threshold("handover", 0.002, "s", "a batch from a worker through shared memory: 0.3 to 2 ms measured"),
        Threshold("workers", 8, "processes", "beyond eight, start-up and memory grow faster than the gain"),
    ),
    not_when="Wait hidden by a device's queue, first batches, small steps on data in memory.",
    references=("https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)
