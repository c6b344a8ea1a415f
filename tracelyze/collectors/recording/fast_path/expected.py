"""What a step that is skipped must look like, and what has been skipped of the step that runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracelyze.collectors.cadence.usual_losses import UsualLosses
from tracelyze.collectors.program.calls import Input
from tracelyze.collectors.program.consumed.batches_in_hand import Batch
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.gradients.microbatches import Key

# What the hooks see of a step.
CALL, BACKWARD, BACKWARD_ENDS, STEP, STEP_ENDS = range(5)
PASS = (CALL, BACKWARD, BACKWARD_ENDS)


def order_of(backwards: int, in_closure: bool) -> tuple[int, ...]:
    """The events of a step with so many backwards, the last of which is called by a closure within the step or not."""
    if in_closure:
        return (*PASS * (backwards - 1), STEP, *PASS, STEP_ENDS)
    return (*PASS * backwards, STEP, STEP_ENDS)


def nothing() -> None:
    """In the place of a weak reference that refers to nothing."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """What is the same in each step with several backwards (gradient accumulation)."""

    factors: list[float]  # the weight of each backward's loss in the loss of the step
    # For each backward, what was read of its loss; None where nothing was read. First the number by which the script
    # divided it (None if it is a part of one mean over the step), then whether it is such a part, then whether it is
    # the mean that a loss function returned.
    read: list[tuple[float | None, bool, bool] | None]


@dataclass(slots=True)
class Expected:
    """Steps that are skipped in a row: what each of them must look like."""

    order: tuple[int, ...] = order_of(1, in_closure=False)
    module: Callable[[], Any] = nothing  # weak reference to the module that is called
    in_train: Callable[[Any], bool] = bool  # whether that module is in train mode
    optimizer: Callable[[], Any] = nothing
    tracked: Callable[[], Tracked | None] = nothing
    losses: UsualLosses = field(default_factory=UsualLosses)
    batch_size: int = 0  # of each call
    retains_graph: bool = False
    accumulation: Accumulation | None = None
    guards: list[tuple[Callable[[], Any], Any]] = field(default_factory=list)  # what to read, and its usual value


class SkippedCall(NamedTuple):
    """A call of the model that was skipped. Holds no tensor."""

    graph: Callable[[], Any]  # weak reference to an object that lives as long as the call's graph
    given: Callable[[], Any]  # weak reference to the first input tensor
    key: Key | None = None  # by which the input is recognised; only in steps with several calls
    batch: Batch | None = None  # of the loader, to which the input belongs; only in steps with several calls
    name: str = "0"  # of that input: its place, or its keyword
    others: Sequence[Input] = ()  # the other inputs

    def with_inputs(self, torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SkippedCall:
        """The same with all tensors that the call was given, of which the first is known."""
        named = [*((str(index), one) for index, one in enumerate(args)), *kwargs.items()]
        tensors = [(name, weakref.ref(one)) for name, one in named if isinstance(one, torch.Tensor)]
        return self._replace(name=named[0][0], others=tensors[1:])


@dataclass(slots=True)
class SkippedEvents:
    """What was skipped of the step that runs: the first `count` events of the expected order."""

    count: int = 0
    calls: list[SkippedCall] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # of the backwards
    losses_before: tuple[float | None, float] | None = None  # the usual losses before this step, to undo what it added

    def clear(self) -> None:
        """The next step begins."""
        self.count, self.losses_before = 0, None
        self.calls.clear()
        self.losses.clear()
