"""Learning rates of an optimizer's groups: as it was made, and what became of them."""

from __future__ import annotations

import json
import math
from typing import Any

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.program.lines import definitions
from tracelyze.collectors.program.optimizers import Tracked, made_with, rates
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.optimizer.schedules import is_being_made
from tracelyze.collectors.signals.signal import Signal, columns_of

SAMPLED_STEPS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000)  # steps of an optimizer
MAX_ROWS = 1000


class GroupRates(Signal):
    """Only of optimizers that were made with several groups whose rates differ."""

    name = "group_rates"
    columns = columns_of("group_rates", "step optimizer steps made now scheduler site rates_at")
    about = "Rates of parameter groups that differed when the optimizer was made, after some of its steps."
    cost = "10 us in a dozen steps"
    pausable = ("after_step",)
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._schedulers: ByIdentity[tuple[str, int | None, int | None]] = ByIdentity()
        self._rows = 0

    def scheduled(self, scheduler: Any, inner: bool, given: Any) -> None:
        optimizer = scheduler.optimizer
        if optimizer in self._schedulers or optimizer not in made_with or not self.progress.backwards:
            return
        if not is_being_made(scheduler):
            site = self.program.sites.here("schedule")
            rates_at = definitions.method(scheduler, "get_lr", "rates", self.program.sites)
            self._schedulers[optimizer] = type(scheduler).__name__, site, rates_at

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        made = _made(tracked)
        if made is not None and tracked.count in SAMPLED_STEPS and self._rows < MAX_ROWS:
            self._sample(tracked, made)
        watched = [one.count for one in self.program.optimizers.tracked() if _made(one) is not None]
        left = [next((step for step in SAMPLED_STEPS if step > count), math.inf) - count - 1 for count in watched]
        self.pause(self.progress.steps + min(left, default=math.inf))

    def _sample(self, tracked: Tracked, made: tuple[float, ...]) -> None:
        optimizer = tracked.optimizer
        now = rates(optimizer)
        if now is None:
            return
        self._rows += 1
        name, site, rates_at = self._schedulers.get(optimizer, (None, None, None))
        row = {"step": self.progress.steps, "optimizer": tracked.index, "steps": tracked.count, "scheduler": name}
        row |= {"made": json.dumps(made), "now": json.dumps(now[: len(made)])}
        row |= {"site": site, "rates_at": rates_at}
        self.context.emit("group_rates", row)


def _made(tracked: Tracked) -> tuple[float, ...] | None:
    """The rates of its groups as it was made; None where they are all the same."""
    optimizer = tracked.optimizer
    made = made_with.get(optimizer) if optimizer.__hash__ is not None else None
    return made if made is not None and len(set(made)) > 1 else None
