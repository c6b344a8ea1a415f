"""Weights that are put into the trained model itself for an evaluation, such as an average, and taken out again.

Seen by its weights as it is evaluated, and as it is called to train again, with no step in between: what differs was
put in. The same numbers say that the model was evaluated with its own weights.
"""

from __future__ import annotations

import math
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.model.followers import sampled
from tracelyze.collectors.signals.model.followers.sampled import GROWTH, MOST, RARE, Sampled
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen


class PutIn(Signal):
    name = "put_in"
    needs = UNSEEN
    columns = columns_of("put_in", "step model changed moved of_moved apart")
    about = "Weights that the trained model is evaluated with, beside those that it trains on with."
    cost = "0.4 ms an evaluation, ever more rarely"
    copied_columns = ()

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._known: dict[int, Sampled | None] = {}  # by the model's number; None: nothing can be compared
        self._called: dict[int, int] = {}  # steps that were done when it was evaluated last
        self._next: dict[int, int] = {}
        self._evaluated: dict[int, tuple[int, list[Any]]] = {}  # until it trains on: steps done, and its numbers then
        self._pending = PendingRows(context.emit, "put_in")

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        number, steps = call.model.number, self.progress.steps
        if call.mode == GRAD and call.in_train:
            if self._evaluated and number in self._evaluated:
                done, before = self._evaluated.pop(number)
                if done == steps and not call.replayed:  # else a step has moved the weights
                    self._compare(number, call.model.module(), before)
            return
        if call.replayed or steps == self._called.get(number) or self.program.trainings.holder(number) is None:
            return
        before_that = max([self._called.get(number, -math.inf), *call.model.skipped.values()])
        self._called[number] = steps
        if steps and steps - before_that >= RARE and steps >= self._next.get(number, 0):
            self._next[number] = steps + steps // GROWTH
            now = self._numbers(number, call.model.module())
            if now:
                self._evaluated[number] = steps, now
            self._pending.release()

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _numbers(self, number: int, module: Any) -> list[Any]:
        torch = self.torch
        left_out = self._known[number] is None if number in self._known else len(self._known) >= MOST
        if module is None or left_out:
            return []
        if not may_compute(torch, torch.cuda.is_available()):
            return []
        chosen = sampled.some(torch, [one for one in module.parameters() if one.requires_grad])
        with unseen(torch), torch.no_grad():
            return sampled.numbers(chosen)

    def _compare(self, number: int, module: Any, evaluated: list[Any]) -> None:
        torch, trained = self.torch, self._numbers(number, module)
        if not trained:
            return
        with unseen(torch), torch.no_grad():
            known = self._known.setdefault(number, Sampled(evaluated, trained))
            same = [one.shape for one in evaluated] == [one.shape for one in trained]
            values = known.compared(torch, evaluated, trained) if known is not None and same else None
        if values is None:
            self._known[number] = None
            return
        self._pending.put([{"step": self.progress.steps, "model": number}], values)
