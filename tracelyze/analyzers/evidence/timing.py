"""When something happened in a training, in the run's own units, and what it cost since."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracelyze.analyzers.script import called
from tracelyze.diagnosis import Cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats, Mask


def name_of(optimization: Optimization) -> str:
    """How to call the training in a sentence: empty if it is the only one, else " of opt_heads (Adam)"."""
    name = training_of(optimization)
    return f" of {name}" if name else ""


def optimizer_of(optimization: Optimization) -> str:
    """How to call the optimizer itself: by its name if there are several, "opt_heads (Adam)"."""
    alone = len(optimization.process.optimizations) < 2 or _alone_in(optimization) is not None
    return f"the optimizer{name_of(optimization)}" if alone else training_of(optimization)


def training_of(optimization: Optimization) -> str:
    """The name of the training among those of its process, "training 2 of 3"; of an optimizer among several of one
    training, "opt_heads (Adam)"; empty if it is the only one."""
    if len(optimization.process.optimizations) < 2:
        return optimization.process.training or ""
    alone = _alone_in(optimization)
    return alone.training if alone is not None else called.optimizer(optimization)


def _alone_in(optimization: Optimization) -> Process | None:
    """Of several trainings of a process, the one of which this is the only optimizer; None where it has others."""
    for training in optimization.process.trainings:
        own = [one.optimizer for one in training.optimizations]
        if optimization.optimizer in own:
            return training if training.training and len(own) == 1 else None
    return None


def training_with(process: Process, optimization: Optimization | None) -> str:
    """Of several trainings of the process, the name of the one that this optimizer makes; else empty."""
    return process.training_of(optimization.optimizer) if optimization is not None else ""


def training_from(process: Process, step: int) -> tuple[Optimization | None, int]:
    """The training that goes on after this step of the process, and how many steps of its own it had made by then."""
    times = process.steps["time"]
    if len(process.optimizations) < 2 or not 0 <= step < len(times):
        return (process.longest if process.optimizations else None), step
    found = [(one, int(np.searchsorted(one.steps["time"], times[step]))) for one in process.optimizations]
    begun = [(one, made) for one, made in found if made < len(one.steps) and one.steps["time"][0] <= times[step]]
    return begun[-1] if begun else (process.longest, step)


class Placed(NamedTuple):
    """Where steps of a process lie: its numbers of steps count those of all its trainings.

    `optimization`: what made the first of them. `name`: of several trainings the one in which all of them lie; else
    empty. `step`: the number of the first within its training. `second`: when that step ended; None if not known.
    """

    optimization: Optimization | None
    name: str
    step: int
    second: float | None


def placed(process: Process, done: Sequence[float]) -> Placed:
    """Where the steps lie before which so many steps of the process were done, in order; of a process with a single
    training as they are counted anyway."""
    longest = process.longest if process.optimizations else None
    first = int(done[0] or 0)
    if len(process.trainings) < 2:
        return Placed(longest, "", first + 1, None)
    rows = np.clip(np.array([int(one or 0) for one in done]), 0, len(process.steps) - 1)
    made, time = process.steps["optimizer"], float(process.steps["time"][rows[0]])
    second = time if math.isfinite(time) else None
    for training in process.trainings:
        own = np.isin(made, [one.optimizer for one in training.optimizations])
        if own[rows[0]]:
            of_first = next(one for one in process.optimizations if one.optimizer == made[rows[0]])
            name = training.training if own[rows].all() else ""
            return Placed(of_first, name, int(own[: rows[0]].sum()) + 1, second)
    return Placed(longest, "", first + 1, second)


def last_to_step(process: Process) -> Optimization | None:
    """The optimizer that made the last step: of several, also of trainings that came one after the other."""
    ends = [(float(np.nanmax(one.steps["time"], initial=-np.inf)), one) for one in process.optimizations]
    return max(ends, key=lambda end: end[0])[1] if ends else None


def numbers(optimization: Optimization) -> Floats:
    """Step numbers, shape [steps]: as recorded, else counted from 1."""
    recorded = optimization.steps["step"]
    return recorded if np.isfinite(recorded).all() else np.arange(1, len(optimization.steps) + 1, dtype=np.float64)


def step_at(optimization: Optimization, index: int) -> int:
    """The number of the step in row `index`."""
    return int(numbers(optimization)[index])


def step_of_process(optimization: Optimization, index: int) -> int:
    """The number of the step in row `index` among all steps of its process, whatever trains there: as events have it,
    which count how many steps were done before them."""
    process = optimization.process.whole or optimization.process
    if len(process.optimizations) < 2:
        return step_at(optimization, index)
    return int(np.flatnonzero(process.steps["optimizer"] == optimization.optimizer)[index]) + 1


def events_of(optimization: Optimization, kind: str) -> list[dict[str, Any]]:
    """The events of this kind, whose steps count those of the process; of several trainings those that came with a step
    of this optimizer, as its gradients are looked at while it steps."""
    process = optimization.process
    found = process.events_of(kind)
    if process.whole is None:
        return found
    made = process.whole.steps["optimizer"]
    counted = [row for row in found if row["step"] and row["step"] <= len(made)]
    return [row for row in counted if made[row["step"] - 1] == optimization.optimizer]


def second_at(optimization: Optimization, index: int) -> float | None:
    """The end of that step on the run's clock, None if it was not recorded."""
    value = float(optimization.steps["time"][index])
    return value if np.isfinite(value) else None


def newest_step(process: Process) -> int | None:
    """The number of the last step that the process took; None if it took none."""
    number = process.steps["step"][-1] if len(process.steps) else math.nan
    return int(number) if math.isfinite(number) else None


def last_step(optimization: Optimization) -> int:
    """The number of the last step."""
    return step_at(optimization, -1)


def seen_until(optimization: Optimization, bad: Mask, looked_at: Mask, few: float) -> int:
    """The last of the `bad` steps; the last one of all where fewer than `few` were looked at after it."""
    last = int(np.flatnonzero(bad)[-1])
    return step_at(optimization, last if looked_at[last + 1 :].sum() >= few else -1)


def cost_of(optimization: Optimization, affected: Mask) -> Cost | None:
    """Time that went into the `affected` steps (shape [steps]), and their share; None if no time was recorded.

    For a fault that leaves nothing of these steps to use. One that makes a training worse, or spoils a part of the
    model, has no such cost: it would read "all of the training time" above a model that has learned.
    """
    seconds = np.nan_to_num(optimization.steps["seconds"])
    total = float(seconds.sum())
    if total <= 0:
        return None
    spent = float(seconds[affected].sum())
    return Cost(spent, spent / total)


def scaled(cost: Cost | None, part: float) -> Cost | None:
    """The `part` (0 to 1) of a cost."""
    if cost is None or cost.seconds is None or cost.share is None:
        return cost
    return Cost(part * cost.seconds, part * cost.share)


def skipped(optimization: Optimization) -> Mask:
    """Steps that GradScaler skipped, shape [steps]; false where nothing is known."""
    return np.asarray(optimization.steps["skipped"] == 1, dtype=bool)


def trained_steps(optimization: Optimization) -> Mask:
    """Steps that had a backward (or where that is unknown) and were not skipped by a scaler, shape [steps]."""
    backwards = optimization.steps["backwards"]
    return np.asarray(~skipped(optimization) & ~(backwards == 0), dtype=bool)
