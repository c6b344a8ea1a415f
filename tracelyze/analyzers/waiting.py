"""How long the training waited for its data, and what worker processes would change about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers import moments, validation

if TYPE_CHECKING:
    from tracelyze.analyzers.run import Mask, Training

MIN_STEPS = 20


@dataclass(frozen=True)
class Waiting:
    """Wait for data per step, medians in seconds. `rows`: the steps it was measured on, shape [steps].

    `step` is the wall time of a step without evaluation passes; `compute` what remains of it without the wait.
    `share` is the summed wait over the summed time. `per_sample` is None where the batch size is unknown.
    """

    rows: Mask
    wait: float
    step: float
    compute: float
    share: float
    batches: float
    per_sample: float | None
    loader: dict[str, Any]


@dataclass(frozen=True)
class Prediction:
    """A step with `workers` worker processes: seconds saved per step, and their share of the step."""

    workers: int
    saved: float
    share: float


def measure(training: Training) -> Waiting | None:
    """The wait of the steady steps: without the first batches of iterators (workers start) and the warm-up."""
    steps = training.steps
    seconds, wait = steps["seconds"], steps["loader_wait"]
    usable = np.isfinite(seconds) & np.isfinite(wait) & (seconds > 0) & ~(steps["loader_first"] == 1)
    usable[: min(3, len(usable))] = False
    if int(usable.sum()) < MIN_STEPS:
        return None
    evaluating = validation.seconds_within_steps(training.process, steps["time"], seconds)
    net = np.maximum(seconds - evaluating, wait)[usable]
    wait = wait[usable]
    batches = np.nan_to_num(steps["loader_batches"][usable], nan=1.0)
    loader = _loader(training)
    samples = np.where(np.isfinite(steps["batch_size"]), steps["batch_size"], loader.get("batch_size") or np.nan)[
        usable
    ]
    sampled = wait[samples > 0] / samples[samples > 0]
    return Waiting(
        rows=usable,
        wait=float(np.median(wait)),
        step=float(np.median(net)),
        compute=float(np.median(net - wait)),
        share=float(wait.sum() / net.sum()),
        batches=max(1.0, float(np.median(batches))),
        per_sample=float(np.median(sampled)) if len(sampled) else None,
        loader=loader,
    )


def _loader(training: Training) -> dict[str, Any]:
    """Settings of the loader that fed most steps; empty if unknown."""
    fed = training.steps["loader"]
    fed = fed[np.isfinite(fed)]
    if not len(fed):
        return {}
    numbers, counts = np.unique(fed, return_counts=True)
    number = int(numbers[int(np.argmax(counts))])
    return next((row for row in training.process.loaders.records() if row["loader"] == number), {})


def predict(waiting: Waiting, cpus: int | None, handover: float, most: int) -> Prediction:
    """What (more) workers would save per step.

    With W workers a batch is ready every T / W seconds, T being the time that one worker needs for it; it is waited
    for only as far as that exceeds the computation. Nothing is faster than handing a finished batch over (`handover`
    seconds each). T is the wait itself without workers; with n busy workers it is n times the period. One core stays
    with the training process.
    """
    now = int(waiting.loader.get("num_workers") or 0)
    workers = max(1, min(most, (cpus or most + 1) - 1))
    if now >= workers:  # no core is left for another worker: the loading itself has to become cheaper
        return Prediction(now, *_saving(waiting, handover * waiting.batches))
    work = waiting.wait if now == 0 else now * (waiting.wait + waiting.compute)
    left = max(handover * waiting.batches, work / workers - waiting.compute)
    return Prediction(workers, *_saving(waiting, left))


def _saving(waiting: Waiting, left: float) -> tuple[float, float]:
    saved = max(0.0, waiting.wait - left)
    return saved, saved / waiting.step if waiting.step > 0 else 0.0


def lost(training: Training, waiting: Waiting, prediction: Prediction) -> tuple[float, float]:
    """Seconds of the run that the saving amounts to so far, and their share of the time of all its steps."""
    cost = moments.cost_of(training, np.ones(len(training.steps), dtype=bool))
    total = cost.seconds if cost and cost.seconds else 0.0
    seconds = prediction.saved * float(waiting.rows.sum())
    return seconds, seconds / total if total > 0 else 0.0
