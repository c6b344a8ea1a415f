"""Which trainable tensors backward reaches and which of them an optimizer holds: the two ought to be the same.

Tensors that an optimizer holds are watched until they have had a gradient, which nearly all have at once. What backward
reaches is read from its graph a few times in a run, because a network's own list of parameters may not hold it (layers
in a Python list, a copy of the network), and what nobody holds must also stay as it is, bit by bit, to be reported.
"""

from __future__ import annotations

import math
import sys
import weakref
from typing import Any

from tracelyze.collectors.program.manual_updates import ManualOptimizer, leaves
from tracelyze.collectors.program.optimizers import Tracked, constructed
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.gradients.frozen import checkpointed, freezing
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.tensors.readback import Readback

REPORTS = (20, 100, 1000, 10_000, 100_000, math.inf)  # steps of an optimizer after which its list is written
WALKS = (3, *(int(30 * 1.5**n) for n in range(30)))  # backwards whose graph is read
UNSTEPPED = 30  # backwards without any step of an optimizer after which one is looked for that should have stepped
FEEDS = 30  # backwards until which calls are asked whether they are fed by what trains
MAX_NAMES = 8
FIRST_STEPS = 20  # steps of an optimizer in which its tensors are all checked
MAX_OPTIMIZERS = 256  # of a process whose tensors are watched: some programs make one per sample
MAX_TRAININGS = 32  # of a process whose backwards are counted anew
MAX_WATCHED = 200  # tensors without gradient that are checked at every step; more in every tenth
MAX_ORPHANS = 64  # tensors without optimizer whose values are compared
SAMPLE = 64  # elements of each


class _Held:
    """What one optimizer holds, and what of it has never had a gradient."""

    def __init__(self, parameters: list[Any]) -> None:
        self.tensors = len(parameters)
        self.elements = sum(p.numel() for p in parameters)
        self.waiting = [(weakref.ref(p), p.numel()) for p in parameters]
        self.names: dict[int, str] = {}  # names of the tensors, by identity of their weak reference
        self.steps = 0
        self.up_to_date = False
        self.reported = 0  # reports that were made: an index of REPORTS

    def check(self) -> None:
        """Strike out those that have a gradient now, or are not to have one any more."""
        if len(self.waiting) <= MAX_WATCHED or self.steps <= FIRST_STEPS or self.steps % 10 == 0:
            self.waiting = [pair for pair in self.waiting if _is_waiting(pair[0]())]


class _Orphan:
    """A tensor that backward reached and no optimizer holds."""

    def __init__(self, parameter: Any) -> None:
        self.ref = weakref.ref(parameter)
        self.elements = parameter.numel()
        self.shape = tuple(parameter.shape)
        self.before = parameter.detach().flatten()[:SAMPLE].clone()


class Reached(Signal):
    name = "reached"
    columns = columns_of(
        "reach",
        "step optimizer steps held held_elements missed missed_elements names shared_model fed_by_trained short_lived",
    )
    about = "Trainable tensors that never get a gradient, and tensors that get gradients and are in no optimizer."
    copied_columns = ()
    pausable = ("forward", "before_backward", "after_backward", "before_step")
    cost = "nothing once all tensors have had a gradient; a few walks over the graph of a backward per run"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._held: dict[int, _Held] = {}  # by optimizer
        self._watched: list[_Held] = []  # optimizers with tensors that have had no gradient yet
        self._orphans: list[_Orphan] = []
        self._compared: list[tuple[dict[str, Any], Readback]] = []
        self._reached: list[Any] = []
        self._fed_by_trained: set[int] = set()
        self._lost: list[tuple[int, ...]] = []
        self._emitted = False
        self._frozen_in_vain = False
        self._checkpointed_in_vain = False
        self._unstepped = False
        self._begun = 0  # backwards of the process when the newest optimizer stepped first
        self._next_walk: float = WALKS[0]  # backwards since then
        self._at_last_step = 0  # backwards of the process when an optimizer stepped last
        self._next_walk_at = 0.0  # backwards of the process shortly before the next walk: the pause ends there

    def forward(self, call: Any, args: Any, kwargs: Any) -> None:
        if self.progress.backwards - self._begun <= FEEDS and call.model.number not in self._fed_by_trained:
            given = (*args, *kwargs.values())
            if any(isinstance(value, self.torch.Tensor) and value.requires_grad for value in given):
                self._fed_by_trained.add(call.model.number)

    def checkpointed_in_vain(self, function: Any) -> None:
        if self._checkpointed_in_vain or not checkpointed.may_train(self.torch, function):
            return
        self._checkpointed_in_vain = True
        frame = sys._getframe(1)
        called = checkpointed.called_at(self.torch, frame)
        if called is not None:
            self.program.sites.of(called, "checkpointed")
        checkpointed.note_text(frame, self.program.sites)
        self.context.record_event("checkpointed-in-vain", "")

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        backwards = self.progress.backwards - self._begun
        if backwards < self._next_walk or not roots:
            return
        self._next_walk = next((walk for walk in WALKS if walk > backwards), math.inf)
        node = roots[0].grad_fn
        if self.program.optimizers.tracked():
            self._reached = [weakref.ref(leaf) for leaf in leaves(node)]
        elif self.progress.backwards >= UNSTEPPED and not self._unstepped:
            self._find_unstepped({id(leaf) for leaf in leaves(node)})

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        if self._watched:
            for held in self._watched:
                held.check()
            self._watched = [held for held in self._watched if held.waiting]
        if self._reached:
            reached = [leaf for ref in self._reached if (leaf := ref()) is not None and leaf.grad is not None]
            self._reached = []
            self._compare(reached)

    def before_step(self, tracked: Tracked) -> None:
        held = self._held.get(tracked.index)
        if held is None and tracked.index < MAX_OPTIMIZERS and not isinstance(tracked.optimizer, ManualOptimizer):
            held = self._held[tracked.index] = _Held(tracked.parameters())
            self._watched.append(held)
        if held is not None and held.waiting:
            held.check()

    def first_step(self, tracked: Tracked) -> None:
        if not self._frozen_in_vain:
            self._find_frozen_in_vain()
        if tracked.index <= MAX_TRAININGS and tracked.index in self._held:
            self._begun, self._next_walk = self.progress.backwards, WALKS[0]

    def _find_frozen_in_vain(self) -> None:
        found = freezing.in_vain(model for _, model in self.program.calls.modules())
        if found is None:
            return
        self._frozen_in_vain = True
        file, line, source = freezing.line_of(found.attribute) or (None, None, None)
        self.context.record_event(
            "frozen-in-vain",
            found.name,
            found.attribute,
            value=float(found.tensors),
            file=file,
            line=line,
            source=source,
        )

    def _find_unstepped(self, reached: set[int]) -> None:
        """Write down an optimizer that holds a tensor which the backward reaches: none of this process has stepped."""
        for optimizer in list(constructed):
            if any(id(p) in reached for group in optimizer.param_groups for p in group["params"]):
                self._unstepped = True
                backwards = float(self.progress.backwards)
                self.context.record_event("unstepped-optimizer", type(optimizer).__name__, value=backwards)
                return

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        held = self._held.get(tracked.index)
        if held is not None:
            held.steps, held.up_to_date = tracked.count, False
            if tracked.count >= REPORTS[held.reported]:
                held.reported += 1
                self._report(tracked.index, held)
        if self._compared:
            self._release()
        backwards = self.progress.backwards
        per_step, self._at_last_step = backwards - self._at_last_step, backwards
        if not self.paused or backwards >= self._next_walk_at:
            self._next_walk_at = self._begun + self._next_walk - 2 * per_step
            far = backwards - self._begun > FEEDS and backwards < self._next_walk_at
            self.pause() if far and not (self._watched or self._reached) else self.resume()

    def finished(self) -> None:
        for tracked in self.program.optimizers.tracked():
            latest = self._held.get(tracked.index)
            if latest is not None and latest.steps < tracked.count:
                latest.steps, latest.up_to_date = tracked.count, False
        for index, held in self._held.items():
            if not held.up_to_date:
                self._report(index, held)
        self._release(wait=True)

    def _report(self, index: int, held: _Held) -> None:
        held.up_to_date = True
        for ref, _ in held.waiting[:MAX_NAMES]:
            parameter = ref()
            if parameter is not None:
                found = self.program.calls.parameter_name(parameter)  # None also if the model has been freed since
                held.names[id(ref)] = found or held.names.get(id(ref)) or _shape(parameter.shape)
        self.context.emit(
            "reach",
            {
                "step": self.progress.steps,
                "optimizer": index,
                "steps": held.steps,
                "held": held.tensors,
                "held_elements": held.elements,
                "missed": len(held.waiting),
                "missed_elements": sum(elements for _, elements in held.waiting),
                "names": _listed([held.names.get(id(ref), "") for ref, _ in held.waiting]),
            },
        )

    def _compare(self, reached: list[Any]) -> None:
        """Look among what backward reached for what no optimizer holds now, and whether it changed since it was seen
        first."""
        torch = self.torch
        lists = [p for o in list(constructed) for group in o.param_groups for p in group["params"]]
        if any(type(p) not in (torch.nn.Parameter, torch.Tensor) for p in lists):
            return  # The tensors are sharded: backward reaches views of what the optimizer holds.
        held = {id(p) for p in lists}
        free = {id(p): p for p in reached if type(p) is torch.nn.Parameter and id(p) not in held}
        gone = [orphan.shape for orphan in self._orphans if orphan.ref() is None]
        kept = [orphan for orphan in self._orphans if id(orphan.ref()) in free]
        known = {id(orphan.ref()) for orphan in kept}
        fresh = [_Orphan(p) for p in list(free.values())[:MAX_ORPHANS] if id(p) not in known]
        short_lived = len(gone) if gone and self._lost == gone and sorted(gone) == sorted(o.shape for o in fresh) else 0
        self._lost = gone
        self._orphans = kept + fresh
        if kept or short_lived or self._emitted:
            self._emitted = True
            self._emit_missed([free[id(orphan.ref())] for orphan in kept], kept, held, short_lived, gone)

    def _emit_missed(
        self, parameters: list[Any], orphans: list[_Orphan], held: set[int], short_lived: int, gone: list[Any]
    ) -> None:
        torch = self.torch
        modules = self.program.calls.modules()
        owners = [[n for n, m in modules if any(p is q for q in m.parameters())] for p in parameters]
        trained = {n for n, m in modules if any(id(q) in held for q in m.parameters())}
        row: dict[str, Any] = {
            "step": self.progress.steps,
            "steps": self.progress.backwards - self._begun,
            "held": len(held),
            "shared_model": sum(not own or bool(trained & set(own)) for own in owners),
            "fed_by_trained": sum(bool(own) and self._fed_by_trained >= set(own) for own in owners),
            "short_lived": short_lived,
        }
        names = [self._name(p) for p in parameters[:MAX_NAMES]] or [_shape(shape) for shape in gone[:MAX_NAMES]]
        row["names"] = _listed(names + [""] * (len(parameters or gone) - len(names)))
        if not parameters:
            self.context.emit("reach", row | {"missed": 0, "missed_elements": 0})
            return
        with torch.no_grad():
            pairs = zip(parameters, orphans, strict=True)
            changed = [(p.detach().flatten()[:SAMPLE] != o.before).any() for p, o in pairs]

        def fill(late: dict[str, Any], values: list[float]) -> None:
            late["missed"] = sum(not value for value in values)
            late["missed_elements"] = sum(o.elements for o, value in zip(orphans, values, strict=True) if not value)

        self._compared.append((row, Readback(torch, changed, fill)))

    def _release(self, wait: bool = False) -> None:
        while self._compared and (wait or self._compared[0][1].arrived()):
            row, readback = self._compared.pop(0)
            readback.fill(row)
            self.context.emit("reach", row)

    def _name(self, parameter: Any) -> str:
        return self.program.calls.parameter_name(parameter) or _shape(parameter.shape)


def _is_waiting(parameter: Any) -> bool:
    """Whether a tensor has had no gradient yet; one that is gone stays as it was."""
    return parameter is None or (parameter.requires_grad and parameter.grad is None)


def _listed(names: list[str]) -> str | None:
    """The names that are known, and how many tensors there are besides."""
    known = ", ".join(name for name in names if name)
    others = sum(not name for name in names)
    return f"{known} and {others} more" if known and others else known or None


def _shape(shape: Any) -> str:
    """How to call a tensor that no called module has a name for."""
    return f"a tensor [{', '.join(str(size) for size in shape)}]"
