"""Calls without autograd beside those that train (program/consumed/asides.py), in steps that are skipped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from operator import attrgetter
from time import perf_counter
from typing import Any

from tracelyze.collectors.program.call import Call
from tracelyze.collectors.recording.fast_path.expected import Aside
from tracelyze.collectors.recording.fast_path.skippable import Skippable
from tracelyze.collectors.recording.guards import Guard


class Asides:
    """Says which calls without autograd may be skipped, and hands them to the signals when their step has ended."""

    def __init__(self, torch: Any, guard: Guard, skippable: Skippable) -> None:
        self._torch, self._guard, self._skippable = torch, guard, skippable
        self._program, self._progress = skippable.program, skippable.progress
        self._forwards = 0  # of the process when the latest step ended that was not skipped
        self._left: float = math.inf  # how many may be skipped before a signal needs one

    def calls_of_step(self) -> int:
        """How many models were called since this was asked for the last time: when a step ends that is not skipped."""
        before, self._forwards = self._forwards, self._progress.forwards
        return self._forwards - before

    def begin(self, others: float) -> None:
        """Steps are about to be skipped, with so many calls that train."""
        self._left = self._skippable.calls_left() - others

    def skipped(self, module: Any, given: Any) -> Call | None:
        """A module was called without autograd; `given` is its first argument. The call, if it may be skipped."""
        if type(given) is not self._torch.Tensor or self._guard.function_modes() or self._left < 1:
            return None
        call = self._program.asides.like(module, given, perf_counter() - self._guard.clock.zero)
        if call is not None:
            self._left -= 1
            self._progress.forwards += 1
        return call

    def step_ended(self, asides: Sequence[Aside]) -> None:
        """A step was skipped in which these calls were made."""
        for _, in_a_row in itertools.groupby(asides, key=attrgetter("calls")):
            self._skippable.dispatcher.dispatch("passed_over", [one.call for one in in_a_row])
