"""Weights that are put into the trained model itself for an evaluation, such as an average, and taken out again.

Seen by its weights as it is evaluated, and as it is called to train again, with no step in between: what differs was
put in. The same numbers say that the model was evaluated with its own weights.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.model.followers import sampled
from tracelyze.collectors.signals.model.followers.sampled import MOST, Pace, Sampled
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
        self._known: ByIdentity[Sampled | None] = ByIdentity()  # by model; None: nothing can be compared
        self._pace = Pace()
        # By model, until it trains on: steps done, and its numbers then. What was sampled goes with its model.
        self._evaluated: ByIdentity[tuple[int, list[Any]]] = ByIdentity()
        self._pending = PendingRows(context.emit, "put_in")

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        number, steps = call.model.number, self.progress.steps
        if call.mode == GRAD and call.in_train:
            model = call.model.module() if self._evaluated else None
            if model is not None and model in self._evaluated:
                done, before = self._evaluated.pop(model)
                if done == steps and not call.replayed:  # else a step has moved the weights
                    self._compare(number, model, before)
            return
        if call.replayed or self._pace.is_done(number, steps) or self.program.trainings.holder(number) is None:
            return
        if self._pace.is_due(call.model, steps):
            model = call.model.module()
            now = self._numbers(model)
            if now:
                self._evaluated[model] = steps, now
            self._pending.release()

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _numbers(self, model: Any) -> list[Any]:
        """A few numbers of the model's weights; none where it is not followed."""
        torch = self.torch
        if model is None or (self._known[model] is None if model in self._known else len(self._known) >= MOST):
            return []
        if not may_compute(torch, torch.cuda.is_available()):
            return []
        chosen = sampled.some(torch, [one for one in model.parameters() if one.requires_grad])
        with unseen(torch), torch.no_grad():
            return sampled.numbers(chosen)

    def _compare(self, number: int, model: Any, evaluated: list[Any]) -> None:
        torch, trained = self.torch, self._numbers(model)
        if not trained:
            return
        with unseen(torch), torch.no_grad():
            if model not in self._known:
                self._known[model] = Sampled(evaluated, trained)
            known = self._known[model]
            same = [one.shape for one in evaluated] == [one.shape for one in trained]
            values = known.compared(torch, evaluated, trained) if known is not None and same else None
        if values is None:
            self._known[model] = None
            return
        self._pending.put([{"step": self.progress.steps, "model": number}], values)
