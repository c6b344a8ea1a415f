"""How many autograd graphs of earlier forwards something still keeps alive when a step ends.

One or two are normal: the variables of the current iteration. A count that rises with the steps is a loss or an output
that was kept without `.item()` or `.detach()`. Once there are many, the appends of the next steps are noted: a list
that has grown from step to step, and whose last entry has a graph, keeps them, and the line that appends is known.
"""

from __future__ import annotations

import itertools
from collections import deque
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.program.lines.noted_calls import NotedCalls, in_script
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

MANY = 30  # graphs: half as many more as the analyzers take for a leak
BACKWARDS = 3  # after which a list that grows with every step has done so
LONG = 10  # entries: a list that a step makes for itself is seldom as long, and does not grow from step to step
NESTED = 8  # parts of an entry that are looked at
MAX_BETWEEN = 3  # frames of a library between the script and the append: of a meter, not of a trainer


class LiveGraphs(Signal):
    name = "live_graphs"
    about = "How many autograd graphs of earlier forwards are still alive, and the line of the append that keeps them."
    cost = "1 us a step; once there are 30 graphs, 1 us a call of any function for three backwards"
    copied_columns = ()
    fast_columns = ("live_graphs",)
    columns = ("steps.live_graphs",)

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._looked = False
        self._calls: NotedCalls | None = None
        self._backwards = 0
        self._appends: dict[tuple[int, CodeType, int], list[tuple[int, int]]] = {}

    def fast_values(self, tracked: Any, time: float) -> tuple[int]:
        count = self.program.calls.live_graphs
        if count >= MANY and not self._looked:
            self._looked = True
            calls = NotedCalls(self._seen)
            if calls.begin():
                self._calls = calls
        return (count,)

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        (row["live_graphs"],) = self.fast_values(tracked, row["time"])

    def finished(self) -> None:
        if self._calls is not None and self._calls.error is not None:
            raise self._calls.error

    def _seen(self, frame: FrameType, given: Any) -> bool:
        """Note an append to a list that holds a graph; whether enough was seen."""
        name = getattr(given, "__name__", "")
        if name == "run_backward":
            self._backwards += 1
            if self._backwards > BACKWARDS:
                self._tell()
                return True
        elif name == "append":
            kept: Any = getattr(given, "__self__", None)
            if type(kept) in (list, deque) and len(kept) >= LONG and self._holds_graph(kept[-1]):
                place = in_script(frame, within=MAX_BETWEEN)
                if place is not None:
                    key = id(kept), place.f_code, place.f_lineno  # An id may be another list's later: lengths tell.
                    self._appends.setdefault(key, []).append((self._backwards, len(kept)))
        return False

    def _tell(self) -> None:
        for (_, code, line), lengths in self._appends.items():
            grows = all(later > earlier for (_, earlier), (_, later) in itertools.pairwise(lengths))
            if grows and lengths[0][0] < lengths[-1][0]:
                self.program.sites.at("keeps", code, line)
        self._appends = {}

    def _holds_graph(self, entry: Any) -> bool:
        if type(entry) in (tuple, list):
            return any(self._has_graph(one) for one in entry[:NESTED])
        if type(entry) is dict:
            return len(entry) <= NESTED and any(self._has_graph(one) for one in entry.values())
        return self._has_graph(entry)

    def _has_graph(self, value: Any) -> bool:
        return issubclass(type(value), self.torch.Tensor) and value.grad_fn is not None
