"""How many different batches went into the gradients of a step: what is accumulated, whatever fed the model.

A micro-batch is a forward of the outermost module in training whose backward follows. Two backwards that go back to the
same input (two losses of one batch, two passes over it) are one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.gradients.places import ELEMENTS, Key, Places, different
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import every_nth, is_plain, may_compute

MAX_CALLS = 256  # of a step
COMPARED_FIRST = 32  # steps of several backwards on a device, whose inputs are compared there
COMPARED_EVERY = 16  # of those after them


class MicroBatches(Signal):
    name = "microbatches"
    needs = UNSEEN
    about = "Different batches whose backwards made up the gradients of a step, and how often it called models."
    cost = "5 us a forward"
    copied_columns = ("microbatches", "model_calls")
    columns = ("steps.microbatches", "steps.model_calls")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._calls: list[tuple[Call, Key]] = []  # since the step before
        self._number = 0  # of all such calls since then
        self._places = Places(self.torch)  # of inputs on a device
        self._accumulated = 0  # steps of several backwards on a device
        # What was found of steps that seemed to have so many; None where it differed from step to step.
        self._found: dict[int, int | None] = {}

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.mode != GRAD or call.of_earlier_step:
            return
        self._number += 1
        if len(self._calls) < MAX_CALLS:
            self._calls.append((call, call.input_key or self._key(call, args, kwargs)))

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        backward = self.program.backwards.running
        if backward is not None:
            reached = {id(call) for call in backward.calls}
            backward.micro_batches = frozenset([key for call, key in self._calls if id(call) in reached])

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        groups = [backward.micro_batches for backward in self.program.backwards.of_step]
        count = different(groups, {})
        row["model_calls"], self._number = self._number, 0
        if count > 1 and not self._places.certain:
            self._accumulated += 1
            self._compare(groups, count, row)
        elif count:
            row["microbatches"] = count
        if not self.program.backwards.unused:
            self._calls.clear()
            turn = self._accumulated
            self._places.clear(bool(turn) and (turn <= COMPARED_FIRST or turn % COMPARED_EVERY == 0 or self._varies()))

    def _varies(self) -> bool:
        return None in self._found.values()

    def _compare(self, groups: Sequence[frozenset[Key]], seemed: int, row: dict[str, Any]) -> None:
        """How many there are is known when the device has compared them. Where it was not asked to, there are as many
        as in the steps of which it was."""
        question = self._places.question() if may_compute(self.torch, True) else None
        if question is not None:
            keys, numbers = question
            self.context.defer(Readback(self.torch, numbers, functools.partial(self._fill, groups, keys, seemed)))
        elif (found := self._found.get(seemed)) is not None:
            row["microbatches"] = found

    def _fill(
        self, groups: Sequence[frozenset[Key]], keys: Sequence[Key], seemed: int, row: dict[str, Any], read: list[float]
    ) -> None:
        row["microbatches"] = count = different(groups, dict(zip(keys, read, strict=True)))
        self._found[seemed] = count if self._found.get(seemed, count) == count else None

    def _key(self, call: Call, args: Any, kwargs: Any) -> Key:
        """What the input is recognised by; a key of its own for one that cannot be read."""
        torch = self.torch
        given = next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)), None)
        if given is None or not is_plain(torch, given) or not given.numel() or not may_compute(torch, given.is_cuda):
            return (id(call),)
        if given.is_cpu:
            return _content(given)
        return self._places.key(given)


def key_of(torch: Any, given: Any) -> Key | None:
    """What an input on the CPU is recognised by; None for one that cannot be read."""
    if not given.is_cpu or not is_plain(torch, given) or not given.numel() or not may_compute(torch):
        return None
    return _content(given)


def _content(given: Any) -> Key:
    return (*given.shape, *every_nth(given, ELEMENTS).tolist())
