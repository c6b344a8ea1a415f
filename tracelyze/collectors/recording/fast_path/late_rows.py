"""Rows of skipped steps whose numbers lie on a device: all of a run of them are read in one piece, and steps later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracelyze.collectors.cadence.usual_losses import UsualLosses
from tracelyze.collectors.storage.pending import PendingSteps
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import may_compute

LONGEST = 0.5  # seconds of steps whose rows wait in one piece: a program that is killed loses what waits
SHORT = 0.05  # seconds of a step: of longer ones the hooks take too little to matter
Held = tuple[dict[str, Any], Sequence[Any]]  # a row, and the losses of its step's backwards, scalars on the device


class LateRows:
    """Hands the rows of skipped steps on to those that wait for a device."""

    def __init__(self, torch: Any, rows: PendingSteps, unusual: Callable[[], None]) -> None:
        """`unusual` is called when a loss turns out to be out of the ordinary."""
        self._torch = torch
        self._rows = rows
        self._unusual = unusual

    def put(self, held: Sequence[Held], factors: Sequence[float], losses: UsualLosses) -> None:
        """Rows of consecutive steps. The loss of each is the sum of its backwards' times `factors`, if there are any.
        Of other columns a scalar on the device stands for its number."""
        rows = [row for row, _ in held]
        scalars: list[Any] = []
        for row, of_step in held:
            scalars += of_step
            scalars += [value for value in row.values() if isinstance(value, self._torch.Tensor)]
        places = [[name for name, value in row.items() if isinstance(value, self._torch.Tensor)] for row in rows]
        for row, names in zip(rows, places, strict=True):
            row.update(dict.fromkeys(names))

        def fill(_first: dict[str, Any], numbers: list[float]) -> None:
            read = iter(numbers)
            usual = True
            for (row, of_step), names in zip(held, places, strict=True):
                values = [next(read) for _ in of_step]
                row["loss"] = sum(map(float.__mul__, values, factors)) if factors else values[0]
                usual &= all(list(map(losses.is_usual, values)))  # Each of them is taken into account.
                for name in names:
                    row[name] = next(read)
            if not usual:
                self._unusual()

        try:
            captured = not may_compute(self._torch, any(one.is_cuda for one in scalars))
            late = None if captured else Readback(self._torch, scalars, fill)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            late = None
            self._rows.failed(error)
        self._rows.put(rows, late)
