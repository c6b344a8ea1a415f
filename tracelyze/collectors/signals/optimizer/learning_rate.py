"""The learning rate of the first parameter group, as the step used it."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.signal import Signal


class LearningRate(Signal):
    name = "learning_rate"
    about = "The learning rate of the first parameter group."
    cost = "1 us a step"
    copied_columns = ()
    fast_columns = ("lr",)
    columns = ("steps.lr",)

    def fast_values(self, tracked: Tracked, time: float) -> tuple[float | None]:
        groups = tracked.optimizer.param_groups
        rate = groups[0].get("lr") if groups else None
        if type(rate) is float:
            return (rate,)
        if isinstance(rate, self.torch.Tensor):
            rate = rate.item() if rate.device.type == "cpu" else None  # a rate on the device would mean a wait
        return (None if rate is None else float(rate),)

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        (rate,) = self.fast_values(tracked, row["time"])
        if rate is not None:
            row["lr"] = rate
