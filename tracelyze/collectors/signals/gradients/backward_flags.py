"""How backward is called: keeping the graph, and whether it runs through an earlier one; in anomaly mode; profiled."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.private_names import PROFILING
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.gradients.earlier_graphs import EarlierGraphs
from tracelyze.collectors.signals.signal import Signal


class BackwardFlags(Signal):
    name = "backward_flags"
    needs = (PROFILING,)
    columns = ("steps.graph_retained", "steps.anomaly_mode", "steps.profiled")
    about = "Whether a step's last backward kept its graph, and whether anomaly mode or a profiler was on."
    copied_columns = ("graph_retained", "anomaly_mode", "profiled")
    guard_columns = ("anomaly_mode", "profiled")
    cost = "1 us a step; a walk through the graph of the first six steps whose backward keeps it"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._profiler_enabled = self.torch.autograd._profiler_enabled
        self._anomaly_enabled = self.torch.is_anomaly_enabled
        self._seen: tuple[bool, bool, bool] | None = None
        self._earlier = EarlierGraphs(context)

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if self.progress.retains_graph and not self._earlier.done:
            self._earlier.look(roots)
        self._seen = self.progress.retains_graph, *self.guard_values()

    def guard_values(self) -> tuple[bool, bool]:
        return self._anomaly_enabled(), self._profiler_enabled()

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if self._seen is not None:
            row["graph_retained"], row["anomaly_mode"], row["profiled"] = self._seen
