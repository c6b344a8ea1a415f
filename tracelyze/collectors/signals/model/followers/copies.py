"""Copies of the trained model that are called now and then, without being trained: do their weights follow?"""

from __future__ import annotations

import weakref
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.model.followers import sampled
from tracelyze.collectors.signals.model.followers.sampled import MOST, TENSORS, Pace, Sampled
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen


class Copy(Sampled):
    """What was sampled of one copy: gone when the program's tensors are."""

    def __init__(self, module: weakref.ref[Any], model: int, first: list[Any], first_of_model: list[Any]) -> None:
        super().__init__(first, first_of_model)
        self.module = module
        self.model = model  # the trained one


class Copies(Signal):
    name = "copies"
    needs = UNSEEN
    columns = columns_of("copies", "step model of changed moved of_moved apart")
    about = "Copies of the trained model that are called between its steps: how far they, and it, have moved."
    cost = "0.3 ms a copy that is evaluated, ever more rarely"
    copied_columns = ()

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._trained: dict[int, weakref.ref[Any]] = {}  # modules that were called to train, by their model's number
        self._copies: dict[int, Copy | None] = {}  # by their model's number; None: it is a copy of nothing
        self._pace = Pace()
        self._pending = PendingRows(context.emit, "copies")

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        number, steps = call.model.number, self.progress.steps
        if call.mode == GRAD and call.in_train:
            if number not in self._trained and len(self._trained) < MOST:
                self._trained[number] = call.model.module
            return
        if call.replayed or self._pace.is_done(number, steps) or self.program.trainings.holder(number) is not None:
            return
        if self._pace.is_due(call.model, steps):
            self._sample(number, call.model.module())
            self._pending.release()

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _sample(self, number: int, module: Any) -> None:
        torch = self.torch
        known = self._copies.get(number)
        if module is None or (number in self._copies and known is None):
            return
        if not may_compute(torch, torch.cuda.is_available()):
            return
        if known is None:
            of = self._original(number, module) if len(self._copies) < MOST else None
        else:
            reference = self._trained.get(known.model)
            of = None if reference is None or reference() is None else (known.model, reference())
        pairs = [] if of is None else _pairs(torch, module, of[1])
        if of is None or not pairs:
            self._copies[number] = None
            return
        with unseen(torch), torch.no_grad():
            now = sampled.numbers([mine for mine, _ in pairs])
            model = sampled.numbers([theirs for _, theirs in pairs])
            if known is None:
                known = self._copies[number] = Copy(self._watched(number, module), of[0], now, model)
            values = known.compared(torch, now, model)
            if values is None:
                self._copies[number] = None
                return
        row = {"step": self.progress.steps, "model": number, "of": of[0]}
        self._pending.put([row], values)

    def _watched(self, number: int, module: Any) -> weakref.ref[Any]:
        """A reference that forgets what was sampled of the module when the program lets go of it."""
        mine = weakref.ref(self)

        def gone(_module: Any) -> None:
            signal = mine()
            if signal is not None:
                signal._copies[number] = None

        return weakref.ref(module, gone)

    def _original(self, number: int, module: Any) -> tuple[int, Any] | None:
        """The trained model, and its number, whose parameters have the shapes of this one's; None if there is none."""
        shapes = [parameter.shape for parameter in module.parameters()]
        for other, reference in self._trained.items():
            model = reference()
            if other == number or model is None or self.program.trainings.holder(other) is None:
                continue
            if shapes == [parameter.shape for parameter in model.parameters()]:
                return other, model
        return None


def _pairs(torch: Any, module: Any, model: Any) -> list[tuple[Any, Any]]:
    """Parameters of a copy beside those of its model that train, a few of them."""
    both = list(zip(module.parameters(), model.parameters(), strict=False))
    own = [(mine, theirs) for mine, theirs in both if theirs.requires_grad and mine.shape == theirs.shape]
    plain = [
        pair for pair in own if pair[0] is not pair[1] and all(is_plain(torch, one) and one.numel() for one in pair)
    ]
    step = max(1, len(plain) // TENSORS)
    chosen = plain[::step][:TENSORS]
    return chosen if len({one.device for pair in chosen for one in pair}) == 1 else []
