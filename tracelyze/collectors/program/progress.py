"""How far the training is: counters that the hooks keep and everybody reads."""

from __future__ import annotations

import weakref
from typing import Any


class Progress:
    """How far the program of one recording has come. A step is one of any optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.longest = 0  # steps of the optimizer that made the most: what a diagnosis calls the steps of a run
        self.backwards = 0
        self.forwards = 0  # outermost module calls
        self.dropouts = 0  # calls of dropout that really dropped
        self.statistics = 0  # calls of batch normalisation that changed running statistics
        self.log_calls = 0  # calls of tracelyze.log
        self.in_backward = False
        self.backwards_at_step = 0  # when the latest step of an optimizer began
        self.retains_graph = False  # The latest backward was called with retain_graph=True.
        self.backward_site: int | None = None  # line that called the latest backward (table sites)
        self.loader: int | None = None  # DataLoader whose batch is in use (table loaders)
        self.iterated: int | None = None  # DataLoader whose latest pass began last (table loaders)
        self.awaited: tuple[weakref.ref[Any], float] | None = None  # iterator asked for a batch, perf_counter then
        self.alert = False  # The step that runs is out of the ordinary: sampled signals sample it.
