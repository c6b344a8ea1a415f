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
    named = [(part, naming.of(part, threaded)) for part in process.parts]
    return [_facts(part, name) for part, name in named if name]


def _facts(part: Process, name: str) -> TrainingFacts:
    steps = part.steps
    time, loss = steps["time"], steps["loss"]
    time, loss = time[np.isfinite(time)], loss[np.isfinite(loss)]
    optimizers = dict.fromkeys(str(training.facts.get("name") or "") for training in part.trainings)
    return TrainingFacts(
        name=name,
        rank=part.rank,
        steps=max((len(training.steps) for training in part.trainings), default=len(steps)),
        seconds=round(float(time.max() - time.min()), 3) if len(time) > 1 else None,
        optimizer=", ".join(name for name in optimizers if name),
        loss=float(loss[-1]) if len(loss) else None,
    )
