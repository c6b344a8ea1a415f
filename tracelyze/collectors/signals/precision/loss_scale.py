"""GradScaler's loss scale at every step, and the steps it skipped because gradients overflowed."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors.readback import Readback


class LossScale(Signal):
    name = "loss_scale"
    inactive = ("after_step",)
    needs_every_step = True
    about = "GradScaler's loss scale, and the steps that it skipped."
    cost = "1 us a step"
    columns = ("steps.scale", "steps.skipped")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._scale: Readback | None = None
        self._used = False

    def scaler_step(self, scaler: Any) -> None:
        """Copy the scale now: `update()` changes it in place."""
        self._used = True
        self.activate()
        self.program.sites.here("step")
        tensor = scaler._scale
        if tensor is not None:
            self._scale = Readback(self.torch, [tensor], lambda row, values: row.update(scale=values[0]))

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if not self._used:
            return
        if self._scale is not None:
            self.context.defer(self._scale)
        # A fused optimizer is called even when its kernel will skip; GradScaler hands it the verdict as an attribute.
        found = getattr(tracked.optimizer, "found_inf", None)
        if "skipped" not in row and isinstance(found, self.torch.Tensor):
            self.context.defer(Readback(self.torch, [found], lambda r, values: r.update(skipped=values[0] > 0)))
        else:
            row.setdefault("skipped", False)
        self._scale = None
        self._used = False
