"""The autocast dtype in force when the model was called."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.calls import GRAD, Call
from tracelyze.collectors.signals.signal import Signal


class Autocast(Signal):
    """Read after the forward returned: a context opened by the caller is still open, one inside forward is not seen."""

    name = "autocast"
    about = "The autocast dtype in force when the model was called."
    cost = "2 us a call"
    columns = ("steps.autocast",)

    def forward(self, call: Call) -> None:
        torch = self.torch
        for device in ("cuda", "cpu"):
            if torch.is_autocast_enabled(device):
                dtype = torch.get_autocast_dtype(device)
                call.autocast = 1 if dtype is torch.float16 else 2 if dtype is torch.bfloat16 else 3
                return

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        call = tracked.group.latest or self.recorder.calls.latest
        if call is not None and call.mode == GRAD:
            row["autocast"] = call.autocast
