"""Idle time of a device for which work had been launched already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracelyze.analyzers.kineto.timeline.table import Floats, Integers


class LateWork:
    """By which activity an idle time ended that began after its launch. `start`, `name`: a device's rows, in order."""

    def __init__(self, start: Floats, name: Integers, names: int) -> None:
        self._start, self._name = start, name
        self._late = np.zeros(names)

    def add(self, end: Floats, late: Floats) -> None:
        """Gaps that end there, and how long of each the device was late."""
        row = np.searchsorted(self._start, end, side="left")
        known = (row < len(self._start)) & (late > 0)
        self._late += np.bincount(self._name[row[known]], late[known], len(self._late))

    def latest(self, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
        """The three activities of the longest such times."""
        order = np.argsort(-self._late, kind="stable")[:3]
        return tuple((names[index], float(self._late[index])) for index in order if self._late[index] > 0)
