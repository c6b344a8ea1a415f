"""Rows that were added to an embedding: whether inputs use them, and whether they ever change."""

from __future__ import annotations

import math
import weakref
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program import vocabularies
from tracelyze.collectors.program.calls import GRAD, Call
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen

LOOKS = (0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 100, 200, 500, 1000, 5000, 20_000)  # steps of the process
MAX_ROWS, ELEMENTS = 256, 16  # new rows that are compared, and elements of each


class _Grown:
    """An embedding with new rows, as it was at the first look."""

    def __init__(self, torch: Any, module: Any, name: str, before: int) -> None:
        self.module = weakref.ref(module)
        self.name, self.before = name, before
        self.first = module.weight.detach()[before : before + MAX_ROWS, :ELEMENTS].clone()
        size = (len(self.first) + 1,)
        self.used = torch.zeros(size, dtype=torch.bool, device=self.first.device)
        self.doubled = torch.zeros_like(self.used)

    def met(self, ids: Any) -> None:
        """These ids went into the model. One that follows itself fills up rows: padding need not be trained."""
        places = (ids - self.before + 1).clamp(0, len(self.first))
        places = places.masked_fill(ids >= self.before + len(self.first), 0)
        self.used.scatter_(0, places.flatten(), True)
        if ids.shape[-1] > 1:
            again = places[..., 1:].masked_fill(ids[..., 1:] != ids[..., :-1], 0)
            self.doubled.scatter_(0, again.flatten(), True)


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
        self._next: float = 0

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.mode != GRAD or self.progress.steps < self._next:
            return
        if not may_compute(self.torch, self.torch.cuda.is_available()):
            return
        with unseen(self.torch), self.torch.no_grad():
            if self._grown is None:
                self._grown = self._find(call.model.module())
            if self._grown:
                self._look(args, kwargs)

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        self._pending.release()
        steps = self.progress.steps
        if self._grown == []:
            self._next = math.inf
            self.pause()
        elif steps >= self._next and self._grown is not None:
            self._next = next((look for look in LOOKS if look >= steps), math.inf)
            if not self._pending.waiting:
                self.pause(self._next)

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _find(self, model: Any) -> list[_Grown]:
        found: list[_Grown] = []
        for name, module in model.named_modules() if model is not None else ():
            weight: Any = getattr(module, "weight", None)
            if isinstance(module, self.torch.nn.Embedding) and is_plain(self.torch, weight):
                before = vocabularies.grown_from(module, int(weight.shape[0]))
                if before is not None:
                    found.append(_Grown(self.torch, module, f"{name}.weight", before))
        return found

    def _look(self, args: Any, kwargs: Any) -> None:
        torch, kinds = self.torch, (self.torch.int64, self.torch.int32)
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor) and one.dtype in kinds]
        for grown in self._grown or ():
            module = grown.module()
            if module is None or module.weight.shape[0] < grown.before + len(grown.first):
                continue
            for ids in given[:1]:
                if ids.device == grown.first.device and ids.dim():
                    grown.met(ids.detach().long())
            now = module.weight.detach()[grown.before : grown.before + MAX_ROWS, :ELEMENTS]
            used = grown.used[1:] & ~grown.doubled[1:]
            same = (now == grown.first).all(1) & used
            row = {"step": self.progress.steps, "parameter": grown.name, "before": grown.before}
            row |= {"rows": int(module.weight.shape[0]), "trainable": bool(module.weight.requires_grad)}
            self._pending.put(
                [row],
                Readback(
                    torch, [used.sum(), same.sum()], lambda late, read: late.update(used=read[0], unchanged=read[1])
                ),
            )
