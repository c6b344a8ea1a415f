"""Whether a GradScaler is used at both ends of a step: scaling the loss before, unscaling the gradients after."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

UNUSED, UNSCALED, STEPPED = 0, 1, 2


class ScalerUse(Signal):
    """Null for programs without an enabled scaler."""

    name = "scaler_use"
    columns = ("steps.losses_scaled", "steps.scaler_use")
    inactive = ("before_backward", "after_step")
    needs_every_step = True
    about = "Losses that GradScaler scaled for a step, and whether GradScaler or the script made the step."
    cost = "1 us a step"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._scaled = 0
        self._use = UNUSED
        self._stepped = False

    def scale(self, original: Any, scaled: Any) -> None:
        self.activate()
        if self._stepped:
            self._scaled, self._stepped = 0, False
        self._scaled += 1

    def unscale(self, scaler: Any, optimizer: Any) -> None:
        self.activate()
        self._use = max(self._use, UNSCALED)

    def scaler_step(self, scaler: Any) -> None:
        self.activate()
        self._use = STEPPED

    def before_backward(self, roots: Any) -> None:
        if self._stepped:  # nothing was scaled since; several optimizers may step after one backward
            self._scaled, self._stepped = 0, False

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        row["losses_scaled"], row["scaler_use"] = self._scaled, self._use
        self._use = UNUSED
        self._stepped = True
