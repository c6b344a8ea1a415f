"""How many autograd graphs of earlier forwards something still keeps alive when a step ends.

One or two are normal: the variables of the current iteration. A count that rises with the steps is a loss or an output
that was kept without `.item()` or `.detach()`.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.signals.signal import Signal


class LiveGraphs(Signal):
    name = "live_graphs"
    about = "How many autograd graphs of earlier forwards are still alive."
    cost = "1 us a step"
    copied_columns = ()
    fast_columns = ("live_graphs",)
    columns = ("steps.live_graphs",)

    def fast_values(self, tracked: Any, time: float) -> tuple[int]:
        return (self.program.calls.live_graphs,)

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        row["live_graphs"] = self.program.calls.live_graphs
