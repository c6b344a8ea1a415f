"""The training loss as the program hands it to a logger, to be held against the losses that went backward."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

MAX_ROWS = 20_000
MAX_NAMES = 8
LOSS = re.compile(
    r"^(train(ing)?[/_.: -])?((train(ing)?|running|epoch|batch|step|total|avg|average|mean)[_ -]?)?loss"
    r"([/_.: -](train(ing)?|step|epoch|batch|iter(ation)?))?$",
    re.IGNORECASE,
)


class ReportedLosses(Signal):
    name = "reported_losses"
    columns = tuple(f"scalars.{name}" for name in ("time", "step", "phase", "name", "value", "logger"))
    about = "Training losses as the program hands them to TensorBoard or Weights & Biases."
    cost = "3 us a value that is logged"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._names: set[str] = set()
        self._rows = 0

    def reported(self, logger: str, values: Mapping[str, Any]) -> None:
        for name, given in values.items():
            if type(name) is not str or not LOSS.match(name) or self._rows >= MAX_ROWS:
                continue
            value = self._number(given)
            if value is None or (name not in self._names and len(self._names) >= MAX_NAMES):
                continue
            self._names.add(name)
            self._rows += 1
            row = {"time": self.context.now(), "step": self.progress.steps, "phase": "reported", "name": name}
            self.context.emit("scalars", row | {"value": value, "logger": logger})

    def _number(self, given: Any) -> float | None:
        """The value where reading it waits for nothing."""
        if type(given) in (float, int):
            return float(given)
        if type(given) is self.torch.Tensor and given.device.type == "cpu" and given.numel() == 1:
            return float(given.detach().item())
        return None
