"""Loads that the next optimizer step undoes: it writes back the weights that were there before, from copies of its own.

An optimizer that keeps copies of the weights in float32 makes them of the model as it is then. If weights are loaded
into the model later, the copies are those from before, and a step copies them over the loaded weights.
"""

from __future__ import annotations

import json
import weakref
from typing import Any

from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.signals.checkpoints.loaded_values import FEWEST, HELD, correlations, samples, weights_of
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen

MAX_LOADS = 12  # of a process: a target network may be loaded again and again
GIVEN_UP = 3  # steps, after which a model that was not called is not waited for
BACK = 0.9  # Correlation: one step moves a weight by little, and 64 unlike elements do not come near it.


class _Load:
    """Some elements of each weight of a module, as they were before a load, after it, and as the model was trained
    next."""

    def __init__(self, module: Any, names: list[str], before: Any) -> None:
        self.module = weakref.ref(module, self._forget)
        self.names = names
        self.before: Any = before
        self.after: Any = None
        self.used: Any = None
        self.row: dict[str, Any] = {}
        self.step = 0

    def _forget(self, _module: Any) -> None:
        self.before = self.after = self.used = None


class UndoneLoads:
    """Compares them as the model trains next, and as it is called after the step that follows. Nothing waits."""

    def __init__(self, context: SignalContext) -> None:
        self._context, self._torch = context, context.torch
        self._pending = PendingRows(self._record, "events")
        self._loading: _Load | None = None
        self._loads: list[_Load] = []
        self._left = MAX_LOADS

    @property
    def waits(self) -> bool:
        """Whether there is anything to compare, or to write."""
        return bool(self._loads or self._pending.waiting)

    def begins(self, module: Any) -> None:
        """The module is about to take in weights."""
        self._loading = None
        if self._left:
            self._left -= 1
            names, values = self._samples(module)
            self._loading = _Load(module, names, values) if names else None

    def ends(self, module: Any, site: int | None) -> None:
        """It has taken them in, at this line."""
        load, self._loading = self._loading, None
        self._loads = [one for one in self._loads if one.module() not in (None, module)]
        if load is None or load.module() is not module:
            return
        names, load.after = self._samples(module)
        if names == load.names and load.after.device == load.before.device:
            load.step = self._context.progress.steps
            load.row = {"name": type(module).__name__, "site": site}
            self._loads.append(load)

    def called(self, call: Call) -> None:
        """The first call that trains after a load, and the first call of all after the step that follows."""
        steps, trains = self._context.progress.steps, call.mode == GRAD and call.in_train and not call.replayed
        waiting = [one for one in self._loads if one.step < steps or (trains and one.used is None)]
        model = call.model.module() if waiting else None
        parts = {id(part) for part in model.modules()} if model is not None else set()
        for load in waiting:
            module = load.module()
            if module is None or id(module) not in parts:
                continue
            if load.step == steps:
                names, load.used = self._samples(module)
                load.used = load.used if names == load.names else None
            else:
                self._loads.remove(load)
                self._compare(load, module)

    def step_ended(self) -> None:
        """Write what has arrived, and give up what nobody calls."""
        self.release()
        steps = self._context.progress.steps
        self._loads = [one for one in self._loads if one.module() is not None and steps - one.step <= GIVEN_UP]

    def release(self, wait: bool = False) -> None:
        """Write what has arrived."""
        self._pending.release(wait)

    def _samples(self, module: Any) -> tuple[list[str], Any]:
        found = list(weights_of(self._torch, module))
        if not found or not may_compute(self._torch, found[0][1].is_cuda):
            return [], None
        found = [(name, one) for name, one in found if one.device == found[0][1].device]
        with unseen(self._torch), self._torch.no_grad():
            return [name for name, _ in found], samples(self._torch, [one for _, one in found])

    def _compare(self, load: _Load, module: Any) -> None:
        names, now = self._samples(module)
        before, after, used = load.before, load.after, load.used
        if names != load.names or used is None or not now.device == used.device == after.device:
            return
        torch = self._torch
        with unseen(torch), torch.no_grad():
            both = ((before, after), (used, after), (now, after), (now, before))
            pairs = [correlations(torch, one, other) for one, other in both]
            count = torch.isfinite(now).sum(1).to(pairs[0].dtype)
            facts = torch.stack([count, *pairs])
        row = load.row | {"step": load.step, "steps": self._context.progress.steps - load.step}
        self._pending.put([row], Readback(torch, facts, _summary))

    def _record(self, _table: str, row: dict[str, Any]) -> None:
        if row.get("undone"):
            self._context.record_event("undone-load", row["name"], json.dumps(row))


def _summary(row: dict[str, Any], read: list[float]) -> None:
    """How many tensors the load had changed for good, and how many of these are again what they were before it."""
    part = len(read) // 5
    facts = zip(*(read[at * part : (at + 1) * part] for at in range(5)), strict=True)
    changed = [one for one in facts if one[0] >= FEWEST and abs(one[1]) < HELD and one[2] > BACK]  # NaN is neither
    row["changed"] = len(changed)
    row["undone"] = sum(abs(left) < HELD and back > BACK for _, _, _, left, back in changed)
