"""Steps of about one duration, but for some that are slow, and looks at the machine meanwhile."""

from __future__ import annotations

import numpy as np

SAVES = dict.fromkeys(range(49, 400, 50), 1.2)


def steps(make, count=400, **columns):
    return make.steps(count) | columns


def seconds(count: int, slow: dict[int, float], usual: float = 0.05) -> list[float | None]:
    """About `usual` seconds a step, others where `slow` says so (by index); the first is unknown."""
    values = np.random.default_rng(1).normal(usual, 0.002, count)
    for index, value in slow.items():
        values[index] = value
    return [None, *values[1:].tolist()]


def ends(values: list[float | None]) -> list[float]:
    return np.cumsum([value or 0.05 for value in values]).tolist()


def looks(end: float, delayed: list[float]) -> dict:
    """A look at the machine at even distances up to `end` seconds; what was lost to others by then."""
    return {"time": np.linspace(0, end, len(delayed)).tolist(), "delayed": delayed, "cpu_seconds": [0] * len(delayed)}
