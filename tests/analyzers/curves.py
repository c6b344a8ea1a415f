"""Runs that are curves alone, as a log holds them: losses, evaluations, scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

COUNT = 400
STEPS = np.arange(1, COUNT + 1)


def log(make: Any, loss: Any, **columns: Any) -> Any:
    """A process as an importer makes it: steps with a loss, nothing else but these columns and tables."""
    loss = np.asarray(loss, dtype=float)
    steps = {"optimizer": [0] * len(loss), "step": list(range(1, len(loss) + 1)), "loss": loss.tolist()}
    tables = {name: columns.pop(name) for name in ("evals", "more", "facts", "sites") if name in columns}
    tables = {"evals": {}, "sites": []} | tables
    return make.process(steps | columns, optimizers=[], loaders=[], models=[], **tables)


def evaluations(validation: Any, training: Any) -> dict[str, list[Any]]:
    """Evaluations of both splits at the same steps."""
    after = [10 * (index + 1) for index in range(len(validation)) for _ in range(2)]
    losses = [float(value) for pair in zip(validation, training, strict=True) for value in pair]
    purposes = ["validation", "training"] * len(validation)
    return {"after_step": after, "loss": losses, "trained": [True] * len(after), "purpose": purposes}


def scalars(phase: str = "train", **curves: Any) -> dict[str, list[dict[str, Any]]]:
    """The table scalars with a value of each curve for every step. `__` stands for a slash in a name."""
    return {
        "scalars": [
            {"step": n, "own_step": n, "phase": phase, "name": name.replace("__", "/"), "value": float(value)}
            for name, values in curves.items()
            for n, value in enumerate(values, 1)
        ]
    }


FALLING = 0.4 + 3 * np.exp(-STEPS / 80)
FEW = 0.5 + 3 * np.exp(-np.arange(30) / 6)
