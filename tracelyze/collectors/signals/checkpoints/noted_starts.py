"""What parameters held as the process began to train, and as optimizers that came later made their first steps."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.tensors.safe_computing import may_compute
from tracelyze.collectors.tensors.starts import Start, is_real, running_statistics

MAX_PARAMETERS = 2000
MAX_STARTS = 20  # of optimizers whose start is noted; of later ones those whose number is a power of two


class NotedStarts:
    """A few elements of each parameter, and of what models keep of their batches, from before steps changed them."""

    def __init__(self, torch: Any, program: Program) -> None:
        self.torch, self.program = torch, program
        self._first: Start | None = None
        self._later: dict[int, Start] = {}  # by number of the optimizer

    def note_all(self) -> None:
        """Note the models that were called before the first step of all."""
        modules = [module for _, module in self.program.calls.modules()]
        self._first = self._noted([p for module in modules for p in module.parameters()], modules, 0)

    def note(self, tracked: Tracked, steps: int) -> None:
        """Note what an optimizer holds that steps for the first time, after so many steps of the process."""
        number = tracked.index
        if number > MAX_STARTS and number & (number - 1):
            return
        held = {id(p): p for group in tracked.optimizer.param_groups for p in group["params"]}
        models = [
            module for _, module in self.program.calls.modules() if any(id(p) in held for p in module.parameters())
        ]
        start = self._noted(list(held.values()), models, steps - tracked.count)
        if start is not None:
            self._later = {key: one for key, one in self._later.items() if not one.empty} | {number: start}

    def has(self, tracked: Tracked) -> bool:
        """Whether the start of this optimizer was noted."""
        return tracked.index in self._later

    def _noted(self, parameters: list[Any], modules: list[Any], step: int) -> Start | None:
        """The start of these parameters, and of what these models keep of their batches."""
        found = list(dict.fromkeys(parameters))[:MAX_PARAMETERS]
        kept = [tensor for module in modules for _, tensor in running_statistics(self.torch, module)]
        found += list(dict.fromkeys(kept))[:MAX_PARAMETERS]
        if not found or not may_compute(self.torch, found[0].is_cuda):
            return None
        found = [p for p in found if is_real(self.torch, p) and p.device == found[0].device]
        return Start(self.torch, found, step) if found else None

    @property
    def all(self) -> list[Start]:
        """The start of the process, and those of later optimizers, in their order."""
        return [one for one in [self._first, *self._later.values()] if one is not None]

    def under_way(self) -> list[Tracked]:
        """The optimizers that still step, but for those that have not since the latest of them began."""
        active = self.program.optimizers.active()
        begun = {one.index: start.step for one in active if (start := self._later.get(one.index)) is not None}
        latest = max(begun.values(), default=0)
        return [one for one in active if one.at_step > latest]

    def of(self, parameter: Any, tracked: Tracked) -> tuple[Start, Start] | None:
        """Where its values are from before any training, and from before this optimizer's steps."""
        starts = [one for one in self.all if one.place(parameter) is not None]
        own = self._later.get(tracked.index)
        return (starts[0], own if own in starts else starts[0]) if starts else None

    def is_of_first(self, parameter: Any) -> bool:
        """Whether a model that was called before the first step of all holds it."""
        return self._first is not None and self._first.place(parameter) is not None

    def values(self, noted: list[tuple[Any, Start]]) -> Any:
        """Shape [tensors, ELEMENTS]: what tensors held at a start."""
        return self.torch.stack([start.values[start.place(tensor)] for tensor, start in noted])
