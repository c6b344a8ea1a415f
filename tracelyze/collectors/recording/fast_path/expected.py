"""What a step that is skipped must look like, and what has been skipped of the step that runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracelyze.collectors.cadence.usual_losses import UsualLosses
from tracelyze.collectors.program.call import Call, Input
from tracelyze.collectors.program.consumed.batches_in_hand import Batch
from tracelyze.collectors.program.consumed.step_backwards import Backward
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.gradients.places import Key

# What the hooks see of a step.
CALL, BACKWARD, BACKWARD_ENDS, STEP, STEP_ENDS = range(5)
PASS = (CALL, BACKWARD, BACKWARD_ENDS)


def order_of(backwards: int, in_closure: bool) -> tuple[int, ...]:
    """The events of a step with `backwards` backwards. `in_closure`: a closure within the step calls the last one."""
    if in_closure:
        return (*PASS * (backwards - 1), STEP, *PASS, STEP_ENDS)
    return (*PASS * backwards, STEP, STEP_ENDS)


def inputs_of(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Input]:
    """The tensors that a call of a model was given."""
    if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:  # nearly always
        return [("0", weakref.ref(args[0]))]
    if not args and set(map(type, kwargs.values())) == {torch.Tensor}:  # as the Trainer of transformers calls models
        return list(zip(kwargs, map(weakref.ref, kwargs.values()), strict=True))
    named = [*((str(index), one) for index, one in enumerate(args)), *kwargs.items()]
    return [(name, weakref.ref(one)) for name, one in named if isinstance(one, torch.Tensor)]


def nothing() -> None:
    """In the place of a weak reference that refers to nothing."""


@dataclass(slots=True)
class ExpectedBackward:
    """What one of the backwards must look like."""

    losses: UsualLosses
    retains_graph: bool = False
    guards: list[tuple[Callable[[], Any], Any]] = field(default_factory=list)  # what to read, and its usual value
    # What was read of the loss; None where nothing was read. First the number by which the script divided it (None if
    # it is a part of one mean over the step), then whether it is such a part, then whether it is the mean that a loss
    # function returned.
    read: tuple[float | None, bool, bool] | None = None
    before: Backward | None = None  # the backward that it is like, where a step consumes several
    reached: tuple[int, ...] = ()  # in rounds (rounds.py): the calls that it runs through, the last one first
    device: Any = None  # on which its loss is, if that is read later; None for a loss on the CPU


@dataclass(slots=True)
class Expected:
    """Steps that are skipped in a row, of one optimizer: what each of them must look like."""

    order: tuple[int, ...] = order_of(1, in_closure=False)
    module: Callable[[], Any] = nothing  # weak reference to the module that is called
    in_train: Callable[[Any], bool] = bool  # whether that module is in train mode
    optimizer: Callable[[], Any] = nothing
    tracked: Callable[[], Tracked | None] = nothing
    batch_size: int = 0  # of each call
    backwards: list[ExpectedBackward] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)  # weights of their losses in the loss of the step, if several
    device: Any = None  # on which their losses are, if those are read later (late_rows.py); None for losses on the CPU


class SkippedCall(NamedTuple):
    """A call of the model that was skipped. Holds no tensor."""

    graph: Callable[[], Any]  # weak reference to an object that lives as long as the call's graph
    given: Callable[[], Any]  # weak reference to the first input tensor
    inputs: Sequence[Input] = ()  # all input tensors, that one first; () if there is no other
    key: Key | None = None  # by which the input is recognised; only in steps with several calls
    batch: Batch | None = None  # of the loader, to which the input belongs; only in steps with several calls


class Aside(NamedTuple):
    """A call without autograd that was skipped (asides.py)."""

    event: int  # how many of the step's events came before it
    calls: int  # and how many of these were calls of the model that trains
    call: Call


@dataclass(slots=True)
class SkippedEvents:
    """What was skipped of the step that runs: the first `count` events of the expected order."""

    count: int = 0
    calls: list[SkippedCall] = field(default_factory=list)
    asides: list[Aside] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)  # of the backwards: numbers, or scalars on a device
    losses_before: tuple[float | None, float] | None = None  # the usual losses before this step, to undo what it added
