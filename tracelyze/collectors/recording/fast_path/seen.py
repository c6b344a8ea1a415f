"""What the latest steps of several optimizers looked like, where their events were dispatched.

Loops of several optimizers repeat themselves in rounds: two steps of a critic, say, and one of a generator. A round is
known when the steps of the latest one were like those of the one before it, each like the one at its place.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.consumed.step_backwards import Backward
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.fast_path.expected import BACKWARD, BACKWARD_ENDS, CALL, STEP, STEP_ENDS

MAX_ROUND = 8  # steps
MAX_EVENTS = 64  # of a step; one with more begins no round
FAR = -1  # in the place of how many calls before a backward one was that is no longer known


@dataclass(frozen=True, slots=True)
class SeenBackward:
    """A backward of a step, by what came before it."""

    reached: tuple[int, ...]  # of each call that it ran through, the last call first: how many calls before it
    models: frozenset[int]  # numbers of the models that it ran through
    retains_graph: bool


class Shape(NamedTuple):
    """What two steps have in common that are alike."""

    optimizer: int
    order: tuple[int, ...]
    calls: tuple[tuple[Any, ...], ...]
    backwards: tuple[SeenBackward, ...]
    own: tuple[int, ...]  # of each backward that the step consumed: how many backwards came after it
    micro_batches: int | None
    batch_size: int
    read: tuple[bool, ...]  # whether anything is read of the losses of these backwards whenever there is such a step


@dataclass(frozen=True, slots=True)
class SeenStep:
    """One step, and the events since the step before it, of whatever optimizer."""

    order: tuple[int, ...]
    calls: tuple[Call, ...]
    backwards: tuple[SeenBackward, ...]
    tracked: weakref.ref[Tracked]
    row: dict[str, Any]
    own: tuple[Backward, ...]  # the backwards that the step consumed
    asides: int  # calls without autograd: these may differ from step to step (program/consumed/asides.py)
    shape: Shape | None  # None for one that may not be skipped


class SeenSteps:
    """Collects the events of the step that runs, and keeps the steps of the latest two rounds."""

    def __init__(self, progress: Progress) -> None:
        self.latest: deque[SeenStep] = deque(maxlen=2 * MAX_ROUND)
        self._progress = progress
        self._latest_calls: deque[Call] = deque(maxlen=MAX_EVENTS)  # with autograd, of whatever step, the latest first
        self._begin()

    def _begin(self) -> None:
        self._order: list[int] = []
        self._calls: list[Call] = []
        self._backwards: list[SeenBackward] = []
        self._asides = 0

    def call(self, call: Call) -> None:
        """A call was dispatched."""
        if call.mode != GRAD:
            self._asides += 1
            return
        self._latest_calls.appendleft(call)
        if len(self._order) < MAX_EVENTS:
            self._order.append(CALL)
            self._calls.append(call)

    def passed_over(self, calls: list[Call]) -> None:
        """These calls were skipped, in steps that are not dispatched any more; a later backward may reach them."""
        self._latest_calls.extendleft(calls)

    def backward(self) -> None:
        """A backward begins."""
        if len(self._order) < MAX_EVENTS:
            self._order.append(BACKWARD)

    def backward_ends(self, reached: list[Call], models: frozenset[int]) -> None:
        """The backward returned; it ran through these calls, and these models."""
        if len(self._order) < MAX_EVENTS:
            latest = list(self._latest_calls)
            calls_ago = tuple([latest.index(call) if call in latest else FAR for call in reached])
            self._order.append(BACKWARD_ENDS)
            self._backwards.append(SeenBackward(calls_ago, models, self._progress.retains_graph))

    def step(self) -> None:
        """The step of an optimizer was called."""
        if len(self._order) < MAX_EVENTS:
            self._order.append(STEP)

    def step_ends(self, tracked: Tracked, row: dict[str, Any], own: list[Backward], several: bool, plain: bool) -> None:
        """The step of this optimizer ended with this row; it consumed these backwards.

        `several`: other optimizers step, too, or several models are called. `plain`: such a step may be skipped.
        """
        if several:
            self.latest.append(self._seen(tracked, row, own, plain))
        self._begin()

    def _seen(self, tracked: Tracked, row: dict[str, Any], own: list[Backward], plain: bool) -> SeenStep:
        order, reference = (*self._order, STEP_ENDS), weakref.ref(tracked)
        known = all(FAR not in one.reached for one in self._backwards)
        if not plain or not known or len(order) > MAX_EVENTS or not all(call.in_train for call in self._calls):
            return SeenStep(order, (), (), reference, {}, (), self._asides, None)
        calls, backwards = tuple(self._calls), tuple(self._backwards)
        kinds = tuple([(one.model.number, one.batch_size, one.carries_on, one.in_train) for one in calls])
        backwards_ago = tuple([self._progress.backwards - one.number for one in own])
        read = tuple([one.is_mean is not None and not one.sampled_only for one in own])
        counts = row.get("microbatches"), row["batch_size"]
        shape = Shape(tracked.index, order, kinds, backwards, backwards_ago, *counts, read)
        return SeenStep(order, calls, backwards, reference, row, tuple(own), self._asides, shape)

    def round(self, optimizers: set[int]) -> list[SeenStep]:
        """The steps of the latest round, if it was like the one before it and each of the optimizers stepped in it."""
        steps = list(self.latest)
        for length in range(1, len(steps) // 2 + 1):
            before, latest = steps[-2 * length : -length], steps[-length:]
            alike = all(one.shape == other.shape is not None for one, other in zip(latest, before, strict=True))
            if alike and {one.shape.optimizer for one in latest if one.shape is not None} == optimizers:
                return [_not_sampled(*pair) for pair in zip(latest, before, strict=True)]
        return []


def _not_sampled(latest: SeenStep, before: SeenStep) -> SeenStep:
    """The latest of two steps that are alike, unless more was read of its losses than of most."""
    return before if any(one.sampled_only for one in latest.own) else latest
