"""What is said about each training of a run that made several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers import naming
from tracelyze.diagnosis import TrainingFacts

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracelyze.analyzers.recorded.run import Process


def trainings_of(process: Process, threaded: Collection[Any]) -> list[TrainingFacts]:
    """The trainings of this process; none if neither it nor another thread beside it made more than one."""
    named = [(training, naming.of(training, threaded)) for training in process.trainings]
    return [_facts(training, name) for training, name in named if name]


def _facts(training: Process, name: str) -> TrainingFacts:
    steps = training.steps
    time, loss = steps["time"], steps["loss"]
    time, loss = time[np.isfinite(time)], loss[np.isfinite(loss)]
    optimizers = dict.fromkeys(str(optimization.facts.get("name") or "") for optimization in training.optimizations)
    return TrainingFacts(
        name=name,
        rank=training.rank,
        steps=max((len(optimization.steps) for optimization in training.optimizations), default=len(steps)),
        seconds=round(float(time.max() - time.min()), 3) if len(time) > 1 else None,
        optimizer=", ".join(name for name in optimizers if name),
        loss=float(loss[-1]) if len(loss) else None,
    )
