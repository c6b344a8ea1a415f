"""Training loops without a torch optimizer: `p -= lr * p.grad`, or an optimizer class of the script's own.

There is no `step` to wrap. So the parameters that the first backward reached are compared from one backward to the
next: where they have changed, there was a step. Its gradients are sampled right after the backward that completed them,
because the program may have cleared them by the time the change is seen.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from tracelyze import redaction
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.safe_computing import has_memory

WITHOUT_STEP = 32  # backwards; accumulation over more than that costs a walk over the graph
MAX_NODES = 20_000  # graph nodes searched for parameters
FINGERPRINT = 4  # leading elements compared where a change leaves no trace in the version (`p.data -= ...`)


class ManualOptimizer:
    """Stands in for the optimizer: has its `param_groups`, holds the parameters weakly."""

    name = "ByHand"  # in the table optimizers, whose readers know it by that name

    def __init__(self, parameters: list[Any]) -> None:
        self._parameters = [weakref.ref(parameter) for parameter in parameters]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [{"params": [parameter for ref in self._parameters if (parameter := ref()) is not None]}]


class StepHandler(Protocol):
    """Records steps (recording/steps.py)."""

    def begins(self, optimizer: Any) -> None:
        """A step begins."""
        ...

    def ends(self, optimizer: Any) -> None:
        """The step is over."""
        ...


class ManualUpdates:
    """Turns changes of the parameters between backwards into steps, which `handler` records.

    It pauses as soon as a torch optimizer steps. After WITHOUT_STEP backwards without any step it starts again, with
    the parameters that a backward reaches then, because a process may train several things.
    """

    def __init__(self, torch: Any, record_event: Callable[[str, str, str], None]) -> None:
        self.handler: StepHandler | None = None
        self._torch = torch
        self._record_event = record_event
        self._optimizer: ManualOptimizer | None = None
        self._before: list[Any] | None = None
        self._steps = False
        self.paused = False
        self.in_step = False  # An optimizer is stepping: what changes now is no manual update.
        self.unchanged = 0  # backwards since the latest step
        self._failed = False

    def backward_begins(self, roots: tuple[Any, ...]) -> None:
        """Record a step, if the parameters have changed since the last backward.

        While paused it need not be called before WITHOUT_STEP backwards have passed without a step.
        """
        if self.paused:
            if self.in_step:
                return
            self.paused = False
        if not self._failed:
            self._safely(lambda: self._check(roots))

    def backward_ends(self) -> None:
        """Remember the parameters, and begin a step: the gradients are complete. Need not be called while paused."""
        if not self._failed and self._optimizer is not None:
            self._safely(self._remember)

    def optimizer_steps(self, optimizer: Any) -> None:
        """A step of an optimizer begins: if it is a torch optimizer, pause. Need not be called while paused."""
        if not isinstance(optimizer, ManualOptimizer):
            self.paused, self._optimizer, self._before, self._steps = True, None, None, False

    def finish(self) -> None:
        """The program ends: record a last step, if the parameters have changed since the last backward."""
        if self._optimizer is not None and self._before is not None and not self._failed:
            self._safely(self._compare)

    def _check(self, roots: tuple[Any, ...]) -> None:
        if self._optimizer is not None:
            self._compare()
        if self._optimizer is None or self.unchanged >= WITHOUT_STEP:
            self._optimizer = ManualOptimizer(leaves(roots[0].grad_fn if roots else None))
            self._steps, self.unchanged = False, 0
        self._before = None

    def _compare(self) -> None:
        if self._optimizer is None or self._before is None:
            return
        now = self._state()
        same_parameters = len(now[0]) == len(self._before[0])  # Fewer: the function that held the model has returned.
        if same_parameters and now != self._before and self.handler is not None:
            self._steps = True
            self.handler.ends(self._optimizer)

    def _remember(self) -> None:
        if self._optimizer is not None and any(map(_is_freed, self._optimizer.param_groups[0]["params"])):
            # FSDP2 gathers parameters for one pass and frees them after it: these are not the real ones.
            self._optimizer = ManualOptimizer([])
        if self._optimizer is not None and self._optimizer.param_groups[0]["params"]:
            self._before = self._state()
            # Until a manual step is seen, a torch optimizer may still take one.
            if self._steps and self.handler is not None:
                self.handler.begins(self._optimizer)

    def _safely(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self._failed = True
            text = redaction.redact_text("".join(traceback.format_exception(error)))
            self._record_event("collector-error", "manual_updates", text)

    def _state(self) -> list[Any]:
        """What an update of the parameters changes: their versions, and a few values.

        Values are read on the CPU only: on a device that would mean to wait.
        """
        assert self._optimizer is not None
        parameters = self._optimizer.param_groups[0]["params"]
        first = parameters[0] if parameters else None
        if first is None or first.is_cuda or not has_memory(self._torch, first):
            values = []
        else:
            values = first.detach().flatten()[:FINGERPRINT].tolist()
        return [[parameter._version for parameter in parameters], values]


def _is_freed(parameter: Any) -> bool:
    return bool(parameter.numel()) and parameter.untyped_storage().size() == 0


def leaves(node: Any) -> list[Any]:
    """The parameters that a backward from this autograd node reaches."""
    found: dict[int, Any] = {}
    seen: set[Any] = set()
    pending = [node]
    while pending and len(seen) < MAX_NODES:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if saved_values.operation(node) == graphs.LEAF:
            found[id(node.variable)] = node.variable
        pending += graphs.parts(node)
    return list(found.values())
