"""Whether a loop without a loader gives its model the same inputs in the same order, pass after pass."""

from __future__ import annotations

import json
from typing import Any

from tracelyze.collectors.program.calls import GRAD, Call
from tracelyze.collectors.signals.signal import Signal


class InputOrder(Signal):
    name = "input_order"
    columns = ("events.kind", "events.text")
    about = "Whether the inputs of a loop without a DataLoader come in the same order, pass after pass."
    cost = "1 us a step without a DataLoader, of the first 20,000"
    copied_columns = ()

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.mode == GRAD and not call.replayed:  # A skipped call was seen as it was made.
            given: Any = args[0] if args else next(iter(kwargs.values()), None)
            self.program.inputs.called(given)

    def finished(self) -> None:
        order = self.program.inputs.found()
        if order.steps:
            self.context.record_event("input-order", "", json.dumps(order._asdict()))
