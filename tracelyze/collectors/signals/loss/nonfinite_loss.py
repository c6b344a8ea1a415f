"""A loss that is not finite: the operation that made it, and the line of the script which that operation stands in.

The operation is read off the graph of the loss. Its line is not in there: it is that of the same call in the next step,
whose calls of torch are noted through Python's own profiling, which is off again as the next backward begins.
"""

from __future__ import annotations

import math
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.internals.private_names import SAVED, UNSEEN
from tracelyze.collectors.program.lines.noted_calls import NotedCalls, in_script
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.loss.nonfinite_operations import (
    Broken,
    broken_target,
    broken_weight,
    first_broken,
    spoiled_by,
    taken_in,
)
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors.safe_computing import may_compute

MAX_LOSSES = 3  # that are looked into
MAX_NAMED = 3  # operations of one loss
MAX_NOTED = 1000  # calls of one step
MAX_LINES = 3  # that stand together, where any of them may be meant
TOGETHER = 6  # lines: what one stretch of a function does
MAX_BETWEEN = 20  # frames of libraries between the script and such a call
CALLED = {  # how a script calls an operation; a division is no call
    "Log1P": ("log1p",), "Acos": ("acos", "arccos"), "Asin": ("asin", "arcsin"), "Atanh": ("atanh", "arctanh"),
    "LogSoftmax": ("log_softmax",), "CtcLoss": ("ctc_loss",),
}  # fmt: skip
LOGARITHMS = ("log", "log2", "log10")
OUTSIDE = Broken("log of 0", True, "Log", 0, 0)  # that of a logarithm of the data alone, which stands in no graph


class NonfiniteLoss(Signal):
    name = "nonfinite_loss"
    needs = (SAVED, *UNSEEN)
    columns = ()
    copied_columns = ()
    about = "Of a loss on the CPU that is NaN or Inf: the operation that made it, and its line; whether weights were."
    cost = (
        "1 us a backward; a walk through the graph for the first three such losses, and one step with their calls noted"
    )

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._looked_into = 0
        self._sought: Broken | None = None
        self._found: list[tuple[CodeType, int]] = []
        self._calls: NotedCalls | None = None

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if self._calls is not None:
            self._stop(self._calls)
        backward = self.program.backwards.running
        value = None if backward is None else backward.value
        if type(value) is not float or math.isfinite(value) or not roots or self._looked_into >= MAX_LOSSES:
            return
        self._looked_into += 1
        root = roots[0].grad_fn
        if root is not None and may_compute(self.torch):
            self._look_into(root)

    def finished(self) -> None:
        if self._calls is not None:
            self._stop(self._calls)

    def _look_into(self, root: Any) -> None:
        with self.torch.no_grad():
            weight = broken_weight(self.torch, root)
            broken = [] if weight is not None else first_broken(self.torch, root)[:MAX_NAMED]
            given = None if broken or weight is not None else taken_in(self.torch, root)
            target = None if broken or weight is not None or given is not None else broken_target(self.torch, root)
            spoiled = spoiled_by(self.torch, root) if weight is not None and self._looked_into == 1 else []
        name = "" if weight is None else self.program.calls.parameter_name(weight) or "A weight"
        reaches = bool(broken) and broken[0].reaches
        named = list(dict.fromkeys(one.what for one in broken))
        self.context.record_event("nonfinite-loss", name, ", ".join(named), value=float(reaches))
        if spoiled:
            self.context.record_event("spoiled-weights", name, ", ".join(spoiled))
        self.program.sites.wanted.add("singular")
        if len(broken) == 1 and broken[0].kind != "Div":
            self._seek(broken[0], CALLED.get(broken[0].kind, (broken[0].kind.lower(),)))
        if given is not None:
            fed, held = given
            self.context.record_event("nonfinite-taken-in", self.program.calls.parameter_name(fed) or "", held)
            self._seek_logarithm(held)
        if target is not None:
            held, reached = target
            self.context.record_event("nonfinite-target", "", held, value=float(reached))
            self._seek_logarithm(held)

    def _seek_logarithm(self, held: str) -> None:
        if held == "-Inf":  # as the logarithm of 0 is
            self._seek(OUTSIDE, LOGARITHMS)

    def _seek(self, broken: Broken, names: tuple[str, ...]) -> None:
        """Note the calls of this operation until the next backward; those of a validation in between are none of a
        graph."""
        found: list[tuple[CodeType, int]] = []

        def seen(frame: FrameType, given: Any) -> bool:
            called = getattr(given, "__name__", "").rstrip("_")
            counts = called in names and (broken is OUTSIDE or self.torch.is_grad_enabled())
            if counts and getattr(given, "__module__", None) not in ("math", "cmath"):
                place = in_script(frame, within=MAX_BETWEEN)
                if place is not None:
                    found.append((place.f_code, place.f_lineno))
            return len(found) >= MAX_NOTED

        calls = NotedCalls(seen)
        if calls.begin():
            self._sought, self._found, self._calls = broken, found, calls

    def _stop(self, calls: NotedCalls) -> None:
        calls.end()
        broken, found = self._sought, self._found
        self._sought, self._found, self._calls = None, [], None
        if calls.error is not None:
            raise calls.error
        if broken is None or not found:
            return
        if len(found) == broken.of:
            self.program.sites.at("nonfinite", *found[broken.place])
            return
        lines = sorted(set(found), key=lambda one: one[1])
        near = len({code for code, _ in lines}) == 1 and lines[-1][1] - lines[0][1] <= TOGETHER
        if len(lines) == 1 or (broken is OUTSIDE and near and len(lines) <= MAX_LINES):
            for code, line in lines:
                self.program.sites.at("nonfinite", code, line)
