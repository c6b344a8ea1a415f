"""When something happened in a training, in the run's own units, and what it cost since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.diagnosis import Cost

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Training
    from tracelyze.analyzers.recorded.table import Floats, Mask


def name_of(training: Training) -> str:
    """How to call the training in a sentence: empty if it is the only one, else " of Adam (optimizer 1)"."""
    if len(training.process.trainings) < 2:
        return f" of {training.process.part}" if training.process.part else ""
    return f" of {training.facts.get('name') or 'an optimizer'} (optimizer {training.optimizer})"


def numbers(training: Training) -> Floats:
    """Step numbers, shape [steps]: as recorded, else counted from 1."""
    recorded = training.steps["step"]
    return recorded if np.isfinite(recorded).all() else np.arange(1, len(training.steps) + 1, dtype=np.float64)


def step_at(training: Training, index: int) -> int:
    """The number of the step in row `index`."""
    return int(numbers(training)[index])


def second_at(training: Training, index: int) -> float | None:
    """The end of that step on the run's clock, None if it was not recorded."""
    value = float(training.steps["time"][index])
    return value if np.isfinite(value) else None


def last_step(training: Training) -> int:
    """The number of the last step."""
    return step_at(training, -1)


def cost_of(training: Training, affected: Mask) -> Cost | None:
    """Time that went into the `affected` steps (shape [steps]), and their share; None if no time was recorded."""
    seconds = np.nan_to_num(training.steps["seconds"])
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


def skipped(training: Training) -> Mask:
    """Steps that GradScaler skipped, shape [steps]; false where nothing is known."""
    return np.asarray(training.steps["skipped"] == 1, dtype=bool)


def trained_steps(training: Training) -> Mask:
    """Steps that had a backward (or where that is unknown) and were not skipped by a scaler, shape [steps]."""
    backwards = training.steps["backwards"]
    return np.asarray(~skipped(training) & ~(backwards == 0), dtype=bool)
