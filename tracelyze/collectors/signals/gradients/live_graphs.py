"""How many autograd graphs of earlier forwards something still keeps alive when a step ends.

One or two are normal: the variables of the current iteration. A count that rises with the steps is a loss or an output
that was kept without `.item()` or `.detach()`. Once there are many, the appends of the next steps are noted: a list
that has grown from step to step, and whose last entry has a graph, keeps them, and the line that appends is known. The
script's variables are looked at as well: what grew otherwise is told by the only line that makes it of itself.
"""

from __future__ import annotations

import sys
from typing import Any

from tracelyze.collectors.program.lines.growing.lists import WITHIN, GrowingLists
from tracelyze.collectors.program.lines.growing.values import GrowingValues
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

MANY = 30  # graphs: half as many more as the analyzers take for a leak
MODELS = 8
NESTED = 8  # parts of an entry that are looked at, and of these
DEEP, LOOKED_AT = 3, 32


class LiveGraphs(Signal):
    name = "live_graphs"
    about = "How many autograd graphs of earlier forwards are still alive, and the line of the append that keeps them."
    cost = "1 us a step; once there are 30 graphs, 1 us a call of any function for three to 24 steps"
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

    def _holds_graph(self, entry: Any) -> int:
        """1 where the entry is a tensor with a graph, 2 where one is found in it: an episode is a list of steps, each a
        tuple; else 0."""
        parts = [(entry, 0)]
        for number, (one, depth) in enumerate(parts):
            if issubclass(type(one), self.torch.Tensor):
                if one.grad_fn is not None:
                    return WITHIN if depth else 1
            elif depth < DEEP and number < LOOKED_AT:
                parts += [(part, depth + 1) for part in _parts(one)]
        return 0


def _parts(entry: Any) -> list[Any]:
    """What a list, a tuple (a named one as well) or a small dictionary holds."""
    if type(entry) in (tuple, list) or (issubclass(type(entry), tuple) and hasattr(type(entry), "_fields")):
        return list(entry)[:NESTED] if type(entry) is list else list(tuple.__iter__(entry))[:NESTED]
    return list(entry.values()) if type(entry) is dict and len(entry) <= NESTED else []
