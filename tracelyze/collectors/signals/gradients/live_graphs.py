"""How many autograd graphs of earlier forwards something still keeps alive when a step ends.

One or two are normal: the variables of the current iteration. A count that rises with the steps is a loss or an output
that was kept without `.item()` or `.detach()`. Once there are many, the appends of the next steps are noted: a list
that has grown from step to step, and whose last entry has a graph, keeps them, and the line that appends is known. The
script's variables are looked at as well: what grew otherwise is told by the only line that makes it of itself.
"""

from __future__ import annotations

import sys
from typing import Any

from tracelyze.collectors.program.lines.growing.lists import GrowingLists
from tracelyze.collectors.program.lines.growing.values import GrowingValues
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

MANY = 30  # graphs: half as many more as the analyzers take for a leak
MODELS = 8
NESTED = 8  # parts of an entry that are looked at


class LiveGraphs(Signal):
    name = "live_graphs"
    about = "How many autograd graphs of earlier forwards are still alive, and the line of the append that keeps them."
    cost = "1 us a step; once there are 30 graphs, 1 us a call of any function for three steps"
    copied_columns = ()
    fast_columns = ("live_graphs",)
    columns = ("steps.live_graphs",)

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._lists: GrowingLists | None = None
        self._values = GrowingValues(context.torch, context.program.sites, "keeps", self._holds_graph)

    def fast_values(self, tracked: Any, time: float) -> tuple[int]:
        count = self.program.calls.live_graphs
        if count >= MANY and self._lists is None:
            self._lists = GrowingLists(self.program.sites, "keeps", self._holds_graph)
            self._lists.begin()
        if self._lists is not None and not self._values.done:
            self._values.look(sys._getframe(1), [model for _, model in self.program.calls.modules()][:MODELS])
        return (count,)

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        (row["live_graphs"],) = self.fast_values(tracked, row["time"])

    def finished(self) -> None:
        if self._lists is not None:
            self._lists.check()

    def _holds_graph(self, entry: Any) -> bool:
        if type(entry) in (tuple, list):
            return any(self._has_graph(one) for one in entry[:NESTED])
        if type(entry) is dict:
            return len(entry) <= NESTED and any(self._has_graph(one) for one in entry.values())
        return self._has_graph(entry)

    def _has_graph(self, value: Any) -> bool:
        return issubclass(type(value), self.torch.Tensor) and value.grad_fn is not None
