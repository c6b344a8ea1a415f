"""How long the training waited for its data, and what worker processes would change about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.throughput import contention
from tracelyze.analyzers.computed.throughput.contention import Contention
from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.analyzers.rule import Limits

MIN_STEPS = 20  # of fewer, one hiccup is a twentieth of the time
LONGEST = 0.02  # share of the steps that is left out of means: a hiccup is not what a step usually waits
STRETCHES, SHORTEST = 10, 5  # of the run, and steps in one of them
MICROSECOND = 1e-6  # seconds
ALWAYS = 0.9  # share of steps whose wait contains an iterator's first batch


@dataclass(frozen=True)
class Waiting:
    """Wait for data per step, means in seconds over all but the longest steps: with workers, batches come in bursts.

    `rows`: the steps it was measured on, shape [steps]. `wait` is the host's wait; `idle` the part of it in which
    nothing was computed: all of it on the CPU, on a device (`on_device`) only what its queue did not hide. `step` is
    the wall time of a step without evaluation passes; `compute` what remains of it without `idle`. `share` is the
    summed idle time over the summed time, in the median over stretches of the run: a loader that is too slow is so all
    the time, a few long hiccups are not it. `work` is the time that one process needs to make the step's data, with
    workers at most; `per_sample` that time for one sample, None where the batch size is unknown. `restarts`: an
    iterator was made anew for nearly every step, although the loader has more to give. `crowded`: the part of the time
    that other programs held the processors.
    """

    rows: Mask
    wait: float
    idle: float
    on_device: bool
    step: float
    compute: float
    share: float
    batches: float
    work: float
    per_sample: float | None
    restarts: bool
    loader: dict[str, Any]
    crowded: Contention = field(default_factory=Contention)

    @property
    def workers(self) -> int:
        """Worker processes of the loader."""
        return int(self.loader.get("num_workers") or 0)

    @property
    def part(self) -> float:
        """The mean idle time as a part of the mean step: what the two times say that are told beside it."""
        return self.idle / self.step if self.step > 0 else 0.0

    @property
    def made(self) -> float:
        """Processor seconds that the workers put into a batch; 0 where it is not known."""
        return self.crowded.used * self.step / self.batches


@dataclass(frozen=True)
class Prediction:
    """A step with `workers` worker processes: seconds saved per step, and their share of the step."""

    workers: int
    saved: float
    share: float


def measure(optimization: Optimization) -> Waiting | None:
    """The wait of the steady steps: without the warm-up, and without the first batches of iterators: workers start, and
    each of them opens its data anew."""
    steps = optimization.steps
    seconds, wait = steps["seconds"], steps["loader_wait"]
    on_device = steps.has("device_wait")
    # The device's wait counts all loaders; a validation's batches are not this training's.
    idle = np.minimum(steps["device_wait"], wait) if on_device else wait
    usable = np.isfinite(seconds) & np.isfinite(wait) & np.isfinite(idle) & (seconds > 0)
    usable[: min(3, len(usable))] = False
    first = usable & (steps["loader_first"] == 1)
    loader = optimization.loader
    batches = np.nan_to_num(steps["loader_batches"], nan=1.0)
    short = bool(loader.get("length")) and loader["length"] <= 2 * statistics.median(batches)
    always_first = first.sum() >= ALWAYS * usable.sum()
    if not (always_first and (not short or not loader.get("num_workers"))):
        usable &= ~first
        steady = usable & ~_first_of_workers(steps["loader_first"] == 1, loader, batches)
        usable = steady if int(steady.sum()) >= MIN_STEPS else usable
    if int(usable.sum()) < MIN_STEPS:
        return None
    evaluating = validation.seconds_within_steps(optimization.process, steps["time"], seconds)
    net = np.maximum(seconds - evaluating, wait)[usable]
    wait, idle, batches = wait[usable], idle[usable], batches[usable]
    samples = np.where(np.isfinite(steps["batch_size"]), steps["batch_size"], loader.get("batch_size") or np.nan)[
        usable
    ]
    usual = net <= np.quantile(net, 1 - LONGEST)
    middle, step, stalled = (float(values[usual].mean()) for values in (wait, net, idle))
    workers = int(loader.get("num_workers") or 0)
    work = workers * step if workers else middle
    size = statistics.median(samples[samples > 0]) if (samples > 0).any() else 0.0
    return Waiting(
        rows=usable,
        wait=middle,
        idle=stalled,
        on_device=on_device,
        step=step,
        compute=step - stalled,
        share=_share(idle, net, workers),
        batches=max(1.0, statistics.median(batches)),
        work=work,
        per_sample=work / size if size else None,
        restarts=bool(always_first and not short),
        loader=loader,
        crowded=contention.shares(optimization),
    )


def _first_of_workers(begins: Mask, loader: dict[str, Any], batches: Floats) -> Mask:
    """Steps on the first batch of each worker that started with an iterator: it is the next worker's turn at each."""
    workers = 0 if loader.get("persistent_workers") else int(loader.get("num_workers") or 0)
    starts = int(np.ceil(workers / max(1.0, statistics.median(batches))))
    since = np.arange(len(begins)) - np.maximum.accumulate(np.where(begins, np.arange(len(begins)), -starts))
    return np.asarray(since < starts, dtype=bool)


def _share(idle: Floats, net: Floats, workers: int) -> float:
    """Idle share of the time, the median of up to ten stretches, in each of which every worker delivers twice."""
    count = min(STRETCHES, max(1, len(idle) // max(SHORTEST, 2 * workers)))
    bounds = np.linspace(0, len(idle), count + 1).astype(np.intp)[:-1]
    return statistics.median(np.add.reduceat(idle, bounds) / np.add.reduceat(net, bounds))


def undisturbed(seen: Waiting) -> Waiting:
    """The wait, less the time in which whoever loads (the process, or its workers) found no free processor.

    On a crowded machine a batch that costs nothing to make is late, too; no setting of the loader changes that.
    """
    loading = 1.0 - (seen.crowded.workers if seen.workers else seen.crowded.own)
    idle = seen.idle * loading
    compute = seen.compute * (1.0 if seen.on_device else 1.0 - seen.crowded.own)
    step = max(idle + compute, 1e-9)
    return replace(
        seen,
        wait=seen.wait * loading,
        idle=idle,
        step=step,
        compute=compute,
        share=seen.share * min(1.0, (idle / step) / max(seen.idle / max(seen.step, 1e-9), 1e-9)),
        work=seen.workers * step if seen.workers else seen.work * loading,
        per_sample=None if seen.per_sample is None else seen.per_sample * loading,
    )


def slow(seen: Waiting, limits: Limits) -> bool:
    """Whether a sample is known to take whoever makes it long, without the time that others took."""
    return of_a_sample(seen) / MICROSECOND >= limits["costly"] * limits["sample"]


def is_light(seen: Waiting, lost: float | None, limits: Limits) -> bool:
    """Whether nothing but a light transform is waited for, and the run lost little time so far, in seconds."""
    return (
        0 < of_a_sample(seen) / MICROSECOND < limits["light"] and (lost or 0.0) < limits["lost"] and not seen.restarts
    )


def is_of_others(seen: Waiting, limits: Limits) -> bool:
    """Whether light samples are late because others held the processors: without them the training waits little."""
    crowd = max(seen.crowded.own, seen.crowded.workers)
    return crowd >= limits["crowd"] and is_light(seen, None, limits) and share_alone(seen) < limits["share"]


def of_a_sample(seen: Waiting) -> float:
    """Seconds that a sample takes whoever makes it, without the time that others took; 0 where that is not known."""
    if not seen.workers:
        return undisturbed(seen).per_sample or 0.0
    size = seen.work / seen.per_sample if seen.per_sample else np.inf  # samples of a step
    return seen.made * seen.batches / size


def share_alone(seen: Waiting) -> float:
    """Share of a step that would be waited on processors of one's own. Workers hide what they make meanwhile."""
    own = undisturbed(seen)
    if not seen.workers:
        return own.share
    making = seen.made * seen.batches / seen.workers
    return max(0.0, 1.0 - own.compute / making) if making > 0 else 0.0


def predict(waiting: Waiting, cpus: int | None, handover: float, most: int) -> Prediction:
    """What (more) workers would save per step.

    A step can be no shorter than its computation and the hand-over of its batches (`handover` seconds each), than the
    work of loading divided among the workers, and than all work together divided among the cores.
    """
    cores = cpus or most
    stream = bool(waiting.loader.get("iterable"))  # more than one worker would yield every sample several times
    workers = max(1, waiting.workers, 1 if stream else min(most, cores))
    bound = max(
        waiting.compute + handover * waiting.batches,
        waiting.work / workers,
        (waiting.work + waiting.compute) / cores,
    )
    return _prediction(waiting, workers, waiting.step - bound)


def cheaper(waiting: Waiting, sample: float) -> Prediction:
    """What it would save if a sample cost no more than `sample` seconds to load; nothing where its cost is unknown."""
    if waiting.per_sample is None or waiting.per_sample <= 0:
        return Prediction(waiting.workers, 0.0, 0.0)
    return _prediction(waiting, waiting.workers, waiting.wait * (1 - sample / waiting.per_sample))


def _prediction(waiting: Waiting, workers: int, saved: float) -> Prediction:
    saved = min(waiting.idle, max(0.0, saved))
    return Prediction(workers, saved, saved / waiting.step if waiting.step > 0 else 0.0)


def lost(optimization: Optimization, waiting: Waiting, prediction: Prediction) -> tuple[float, float]:
    """Seconds of the run that the saving amounts to so far, and their share of the time of all its steps."""
    cost = timing.cost_of(optimization, np.ones(len(optimization.steps), dtype=bool))
    total = cost.seconds if cost and cost.seconds else 0.0
    seconds = prediction.saved * float(waiting.rows.sum())
    return seconds, seconds / total if total > 0 else 0.0
