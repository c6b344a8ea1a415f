"""The lines that clear gradients which a backward has filled and no step has used yet, as they run: for a few steps."""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines.noted_calls import NotedCalls, in_script
from tracelyze.collectors.program.progress import Progress

A_HABIT = 5  # steps with gradients that were discarded
STEPS = 3
MOST_BACKWARDS = 64
MAX_BETWEEN = 6  # frames: torch's decorators around zero_grad, and a wrapper of a framework


class ClearingCalls:
    """Records calls of `zero_grad` between two backwards of a step as sites with the role clears."""

    def __init__(self, sites: Sites, progress: Progress) -> None:
        self._sites = sites
        self._progress = progress
        self._calls = NotedCalls(self._seen, self._called)
        self._until = 0  # steps of the process
        self._discarded = 0
        self._backwards = 0
        self._places: dict[tuple[CodeType, int], None] = {}

    def discarded(self) -> None:
        """A step has come whose gradients were cleared in between: once that is a habit, note which calls do so."""
        self._discarded += 1
        if self._discarded == A_HABIT:
            self._until = self._progress.steps + STEPS
            self._calls.begin()

    def check(self) -> None:
        """Raise what went wrong meanwhile."""
        if self._calls.error is not None:
            raise self._calls.error

    def _called(self, frame: FrameType) -> None:
        if frame.f_code.co_name == "zero_grad" and self._progress.backwards > self._progress.backwards_at_step:
            place = in_script(frame.f_back, within=MAX_BETWEEN)
            if place is not None:
                self._places[place.f_code, place.f_lineno] = None

    def _seen(self, frame: FrameType, given: Any) -> bool:
        if getattr(given, "__name__", "") != "run_backward":
            return False
        self._backwards += 1
        if self._progress.steps < self._until and self._backwards < MOST_BACKWARDS:
            return False
        for code, line in self._places:
            self._sites.at("clears", code, line)
        return True
