"""A loss that is not finite: the operation that made it, and the line of the script which that operation stands in.

The operation is read off the graph of the loss. Its line is not in there: it is that of the same call in the next step,
whose calls of torch are noted through Python's own profiling, which is off again as the next backward begins.
"""

from __future__ import annotations

import math
import sys
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.internals.private_names import SAVED, UNSEEN
from tracelyze.collectors.program.call_sites import is_library
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.loss.nonfinite_operations import Broken, broken_weight, first_broken
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors.safe_computing import may_compute

MAX_LOSSES = 3  # that are looked into
MAX_NAMED = 3  # operations of one loss
MAX_NOTED = 1000  # calls of one step
CALLED = {  # how a script calls an operation; a division is no call
    "Log1P": ("log1p",), "Acos": ("acos", "arccos"), "Asin": ("asin", "arcsin"), "Atanh": ("atanh", "arctanh"),
    "LogSoftmax": ("log_softmax",),
}  # fmt: skip


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
        self._names: frozenset[str] = frozenset()
        self._noted: list[tuple[CodeType, int]] = []
        self._notes: Any = None  # the function that Python calls meanwhile

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if self._notes is not None:
            self._stop()
        backward = self.program.backwards.running
        value = None if backward is None else backward.value
        if type(value) is not float or math.isfinite(value) or not roots or self._looked_into >= MAX_LOSSES:
            return
        self._looked_into += 1
        root = roots[0].grad_fn
        if root is not None and may_compute(self.torch):
            self._look_into(root)

    def finished(self) -> None:
        if self._notes is not None:
            self._stop()

    def _look_into(self, root: Any) -> None:
        with self.torch.no_grad():
            weight = broken_weight(self.torch, root)
            broken = [] if weight is not None else first_broken(self.torch, root)[:MAX_NAMED]
        name = "" if weight is None else self.program.calls.parameter_name(weight) or "A weight"
        reaches = bool(broken) and broken[0].reaches
        named = list(dict.fromkeys(one.what for one in broken))
        self.context.record_event("nonfinite-loss", name, ", ".join(named), value=float(reaches))
        self.program.sites.wanted.add("singular")
        if len(broken) == 1 and broken[0].kind != "Div":
            self._seek(broken[0])

    def _seek(self, broken: Broken) -> None:
        """Note the calls of this operation until the next backward, where nobody else profiles the program."""
        if sys.getprofile() is not None:
            return
        names = frozenset(CALLED.get(broken.kind, (broken.kind.lower(),)))
        noted: list[tuple[CodeType, int]] = []

        def note(frame: FrameType, event: str, given: Any) -> None:
            if event == "c_call" and getattr(given, "__name__", "").rstrip("_") in names and len(noted) < MAX_NOTED:
                place: FrameType | None = frame
                while place is not None and is_library(place.f_code.co_filename):
                    place = place.f_back
                if place is not None:
                    noted.append((place.f_code, place.f_lineno))

        self._sought, self._noted, self._notes = broken, noted, note
        sys.setprofile(note)

    def _stop(self) -> None:
        if sys.getprofile() is self._notes:
            sys.setprofile(None)
        broken, noted = self._sought, self._noted
        self._sought, self._noted, self._notes = None, [], None
        if broken is None or not noted:
            return
        if len(noted) == broken.of:
            self.program.sites.at("nonfinite", *noted[broken.place])
        elif len(set(noted)) == 1:
            self.program.sites.at("nonfinite", *noted[0])
