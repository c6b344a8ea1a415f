"""Rows that were added to an embedding: whether inputs use them, and whether they ever change.

A weight that stays as it was need not be what the model looks up: fine-tuning keeps the old embedding beside a copy
that it trains, or adds what an adapter has learned to its rows. So one forward is watched for what it calls."""

from __future__ import annotations

import math
import weakref
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.modules import vocabularies
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import ModuleWatch, SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen

SAMPLED_STEPS = (0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 100, 200, 500, 1000, 5000, 20_000)  # steps since the training began
MAX_ROWS, ELEMENTS = 256, 16  # new rows that are compared, and elements of each
UNSEEN_FOR = 20  # steps in which no model could be looked at, after which none is expected to be
LOOKS = 5  # steps whose forward is to be watched, before what it looks up is taken not to be seen


class _Grown:
    """An embedding with new rows, as it was in the first sample."""

    def __init__(self, torch: Any, module: Any, name: str, before: int) -> None:
        self.module = weakref.ref(module)
        self.name, self.before = name, before
        self.first = vocabularies.stored_weight(module).detach()[before : before + MAX_ROWS, :ELEMENTS].clone()
        size = (len(self.first) + 1,)
        self.met_times = torch.zeros(size, dtype=torch.int64, device=self.first.device)
        self.doubled = torch.zeros_like(self.met_times)
        self.looked_up: bool | None = None  # by the forward, and nothing that is trained is added; None: not seen

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


class _LookUps(ModuleWatch):
    """Watches one training forward for the embeddings that it calls, and for what stands around them."""

    def __init__(self, torch: Any, grown: list[_Grown]) -> None:
        self._torch = torch
        self._grown = grown
        self._names: dict[int, str] = {}
        self._called: list[str] = []  # names of the modules that returned, but for those without parameters
        self._adapted: set[int] = set()  # embeddings, by id, whose rows are not all that is looked up
        self.error: Exception | None = None
        self.over = False

    def begins(self, root: Any) -> _LookUps | None:
        """Watch this call if it trains the model of these embeddings, and nobody compiles or traces it."""
        torch = self._torch
        if self.over or not (root._modules and torch.is_grad_enabled()) or hasattr(root, "_orig_mod"):
            return None
        if not may_compute(torch, torch.cuda.is_available()):
            return None
        names = {id(module): name for name, module in root.named_modules()}
        if not any(id(grown.module()) in names for grown in self._grown):
            return None
        self._names = names
        return self

    def returned(self, module: Any, output: Any, args: Any = (), kwargs: Any = None) -> None:
        """A module within returned, and those that it called before it."""
        name = self._names.get(id(module))
        if name is None or self.error is not None:
            return
        try:
            if next(module.parameters(), None) is None:
                return
            held = {id(one.weight) for grown in self._grown if (one := grown.module()) is not None}
            for grown in self._grown:
                inner = grown.module()
                place = self._names.get(id(inner), "")
                if place.startswith(f"{name}."):
                    within = [one for one in self._called if one.startswith(f"{name}.")]
                    around = all(f"{place}.".startswith(f"{one}.") for one in within)  # and calls nothing else
                    if around and any(one.requires_grad and id(one) not in held for one in module.parameters()):
                        self._adapted.add(id(inner))
            self._called.append(name)
        except Exception as error:  # a module may answer in any way
            if raised_by_a_signal_handler(error):
                raise
            self.error = error

    def ends(self, root: Any, output: Any) -> None:
        """The model returned."""
        if self._called:  # nothing is called within a model that was compiled where it stands
            for grown in self._grown:
                name = self._names.get(id(grown.module()))
                is_all = id(grown.module()) not in self._adapted
                grown.looked_up = None if name is None else name in self._called and is_all
        self._names, self.over = {}, True


class NewRows(Signal):
    name = "new_rows"
    needs = UNSEEN
    columns = columns_of("new_rows", "step parameter before rows trainable looked_up used unchanged")
    about = "Rows that were added to an embedding, whether inputs use them, and whether they change."
    cost = "nothing where no embedding was made larger; else 100 us in a dozen steps"
    pausable = ("forward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._pending = PendingRows(context.emit, "new_rows")
        self._grown: list[_Grown] | None = None  # not looked for yet
        self._begun = 0  # steps of the process when the newest training began, or was looked at first
        self._next: float = 0
        self._watch: _LookUps | None = None
        self._looks = 0

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

    def before_first_step(self, tracked: Tracked) -> None:
        """An optimizer begins: since the training before it, the program may have made an embedding larger.

        The rows that were copied into it are told by their values, which the first step changes.
        """
        if self._grown != [] or not vocabularies.may_have_grown():
            return
        if tracked.inside_backward or not may_compute(self.torch, self.torch.cuda.is_available()):
            return
        held = {id(p) for group in tracked.optimizer.param_groups for p in group["params"]}
        models = [one for _, one in self.program.calls.modules() if any(id(p) in held for p in one.parameters())]
        with unseen(self.torch), self.torch.no_grad():
            found = next((found for one in models if (found := self._find(one))), None)
        if found is not None:
            self._begins(found)

    def first_step(self, tracked: Tracked) -> None:
        """An embedding that was made larger as it stands is known by its size, in the next forward."""
        if self._grown == []:
            self._begins(None)

    def _begins(self, grown: list[_Grown] | None) -> None:
        self._grown, self._next, self._looks, self._begun = grown, 0, 0, self.progress.steps
        self.resume()

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        self._pending.release()
        steps = self.progress.steps
        if self._grown is None and steps - self._begun >= UNSEEN_FOR:
            self._grown = []
        if self._grown == []:
            self._next = math.inf
            self.pause()
        elif steps >= self._next and self._grown is not None:
            self._next = next((at for step in SAMPLED_STEPS if (at := self._begun + step) >= steps), math.inf)
            if not self._look_up() and not self._pending.waiting:
                self.pause(self._next)

    def _look_up(self) -> bool:
        """Watch the next forward, if what it looks up is not known yet. Whether it is watched, or is to be."""
        before, self._watch = self._watch, None
        if before is not None:
            self.context.next_call.take_back(before)
        if self._looks >= LOOKS or all(grown.looked_up is not None for grown in self._grown or ()):
            return False
        if self.context.next_call.watch is None:  # else by another signal, in this step
            self._looks += 1
            self._watch = self.context.next_call.watch = _LookUps(self.torch, self._grown or [])
        return True

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _find(self, model: Any) -> list[_Grown]:
        found: list[_Grown] = []
        others: list[tuple[str, Any, Any]] = []
        for name, module in model.named_modules() if model is not None else ():
            weight: Any = vocabularies.stored_weight(module) if isinstance(module, self.torch.nn.Embedding) else None
            if weight is not None and is_plain(self.torch, weight):
                before = vocabularies.grown_from(module, int(weight.shape[0]))
                if before is not None:
                    found.append(_Grown(self.torch, module, f"{name}.weight", before))
                else:
                    others.append((name, module, weight))
        for name, module, weight in others if found else ():
            grown = next((one for one in found if vocabularies.is_copy(one.module(), weight)), None)
            if grown is not None:
                found.append(_Grown(self.torch, module, f"{name}.weight", grown.before))
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
            row["looked_up"] = grown.looked_up
            self._pending.put([row], Readback.of_columns(torch, {"used": used.sum(), "unchanged": same.sum()}))
