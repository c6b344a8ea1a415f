"""Over how many targets each loss of an accumulated step is a mean, and how much that mean weighs in it."""

from __future__ import annotations

import math
from typing import Any

from tracelyze.collectors.cadence.search import Search
from tracelyze.collectors.internals.private_names import SAVED, UNSEEN
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors import saved_values
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen
from tracelyze.collectors.tensors.written_out.counted_targets import Counted, counted

MOST_BACKWARDS = 64  # of a step that is looked at
TRIED = 5  # steps without accumulation, or without such a loss, before the looks get rare
AGAIN = 4  # times the steps so far, when it is looked at again: accumulation may begin later


class CountedTargets(Signal):
    name = "counted_targets"
    needs = (*UNSEEN, SAVED)
    columns = ("counted_targets.step", "counted_targets.targets", "counted_targets.weight")
    about = "Targets that count in each micro-batch of a step, and the weight of their mean, from the losses' graphs."
    cost = "200 us per backward of a sampled step"
    sampled = True
    first_steps = 10
    pausable = ("before_backward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        saved_values.watch(self.torch)
        self._pending = PendingRows(context.emit, self.name)
        self._search = Search(self.meter, AGAIN)
        self._of_step: list[Counted | None] = []
        self._at = 0  # steps that were done before
        self._looking = True
        self._missed = 0  # steps in a row that had nothing to record

    def first_step(self, tracked: Tracked) -> None:
        self._missed = 0
        self._search.begin(self.progress.steps)
        self.resume()

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if not self._looking or len(self._of_step) > MOST_BACKWARDS:
            return
        self._at = self.progress.steps
        found = self._counted(roots[0]) if roots else None
        self._of_step.append(found)

    def _counted(self, root: Any) -> Counted | None:
        torch = self.torch
        if not is_plain(torch, root) or root.dim() or root.grad_fn is None or not may_compute(torch, root.is_cuda):
            return None
        with unseen(torch), torch.no_grad():
            return counted(torch, root.grad_fn)

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        self._pending.release()
        of_step, self._of_step = self._of_step, []
        if self._looking:
            known = [one for one in of_step if one is not None]
            whole = 1 < len(of_step) == len(known) <= MOST_BACKWARDS
            self._missed = 0 if whole else self._missed + 1
            if whole:
                self._record(known)
        self._looking = self._search.due(self.progress.steps, expected=self._missed < TRIED)
        if not self._looking and not self._pending.waiting:
            self.pause(self._search.until)

    def _record(self, known: list[Counted]) -> None:
        values = [value for one in known for value in one]
        if len({value.device for value in values}) > 1:
            return
        rows: list[dict[str, Any]] = [{"step": self._at} for _ in known]

        def fill(_first: dict[str, Any], read: list[float]) -> None:
            for row, targets, weight in zip(rows, read[::2], read[1::2], strict=True):
                row["targets"], row["weight"] = targets, None if math.isnan(weight) else weight

        self._pending.put(rows, Readback(self.torch, values, fill))

    def finished(self) -> None:
        self._pending.release(wait=True)
