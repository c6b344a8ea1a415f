"""Rows that were added to an embedding: whether inputs use them, and whether they ever change."""

from __future__ import annotations

import math
import weakref
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.modules import vocabularies
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen

SAMPLED_STEPS = (0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 100, 200, 500, 1000, 5000, 20_000)  # steps since the training began
MAX_ROWS, ELEMENTS = 256, 16  # new rows that are compared, and elements of each


class _Grown:
    """An embedding with new rows, as it was in the first sample."""

    def __init__(self, torch: Any, module: Any, name: str, before: int) -> None:
        self.module = weakref.ref(module)
        self.name, self.before = name, before
        self.first = vocabularies.stored_weight(module).detach()[before : before + MAX_ROWS, :ELEMENTS].clone()
        size = (len(self.first) + 1,)
        self.met_times = torch.zeros(size, dtype=torch.int64, device=self.first.device)
        self.doubled = torch.zeros_like(self.met_times)

    def met(self, torch: Any, ids: Any) -> None:
        """These ids went into the model. One that mostly follows itself fills up rows: padding need not be trained."""
        places = (ids - self.before + 1).clamp(0, len(self.first))
        places = places.masked_fill(ids >= self.before + len(self.first), 0)
        ones = torch.ones_like(places)
        self.met_times.scatter_add_(0, places.flatten(), ones.flatten())
        if ids.shape[-1] > 1:
            again = places[..., 1:].masked_fill(ids[..., 1:] != ids[..., :-1], 0)
            self.doubled.scatter_add_(0, again.flatten(), ones[..., 1:].flatten())

    def used(self) -> Any:
        """Which of the new rows inputs use, without padding, shape [rows]."""
        return (self.met_times[1:] > 0) & (2 * self.doubled[1:] < self.met_times[1:])


class NewRows(Signal):
    name = "new_rows"
    needs = UNSEEN
    columns = tuple(
        f"new_rows.{name}" for name in ("step", "parameter", "before", "rows", "trainable", "used", "unchanged")
    )
    about = "Rows that were added to an embedding, whether inputs use them, and whether they change."
    cost = "nothing where no embedding was made larger; else 100 us in a dozen steps"
    pausable = ("forward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._pending = PendingRows(context.emit, "new_rows")
        self._grown: list[_Grown] | None = None  # not looked for yet
        self._begun = 0  # steps of the process when the newest training was looked at first
        self._next: float = 0

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.mode != GRAD or self.progress.steps < self._next:
            return
        if not may_compute(self.torch, self.torch.cuda.is_available()):
            return
        with unseen(self.torch), self.torch.no_grad():
            if self._grown is None:
                self._grown = self._find(call.model.module())
                self._begun = self.progress.steps
            if self._grown:
                self._sample(args, kwargs)

    def first_step(self, tracked: Tracked) -> None:
        """An optimizer begins: since the training before it, the program may have made an embedding larger."""
        if self._grown == []:
            self._grown, self._next = None, 0
            self.resume()

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        self._pending.release()
        steps = self.progress.steps
        if self._grown == []:
            self._next = math.inf
            self.pause()
        elif steps >= self._next and self._grown is not None:
            self._next = next((at for step in SAMPLED_STEPS if (at := self._begun + step) >= steps), math.inf)
            if not self._pending.waiting:
                self.pause(self._next)

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _find(self, model: Any) -> list[_Grown]:
        found: list[_Grown] = []
        for name, module in model.named_modules() if model is not None else ():
            weight: Any = vocabularies.stored_weight(module) if isinstance(module, self.torch.nn.Embedding) else None
            if weight is not None and is_plain(self.torch, weight):
                before = vocabularies.grown_from(module, int(weight.shape[0]))
                if before is not None:
                    found.append(_Grown(self.torch, module, f"{name}.weight", before))
        return found

    def _sample(self, args: Any, kwargs: Any) -> None:
        torch, kinds = self.torch, (self.torch.int64, self.torch.int32)
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor) and one.dtype in kinds]
        for grown in self._grown or ():
            module = grown.module()
            weight = None if module is None else vocabularies.stored_weight(module)
            if weight is None or weight.shape[0] < grown.before + len(grown.first):
                continue
            for ids in given[:1]:
                if ids.device == grown.first.device and ids.dim():
                    grown.met(torch, ids.detach().long())
            now = weight.detach()[grown.before : grown.before + MAX_ROWS, :ELEMENTS]
            used = grown.used()
            same = (now == grown.first).all(1) & used
            row = {"step": self.progress.steps, "parameter": grown.name, "before": grown.before}
            row |= {"rows": int(weight.shape[0]), "trainable": bool(weight.requires_grad)}
            self._pending.put(
                [row],
                Readback(
                    torch, [used.sum(), same.sum()], lambda late, read: late.update(used=read[0], unchanged=read[1])
                ),
            )
