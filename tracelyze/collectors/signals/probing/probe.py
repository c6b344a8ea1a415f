"""The program's model called again in a copy, at a few early steps: `tracelyze collect --probe`."""

from __future__ import annotations

import inspect
import math
from time import perf_counter
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.call_sites import is_library
from tracelyze.collectors.program.models import first_tensor, wrapped
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.probing import replays
from tracelyze.collectors.signals.probing.copied_model import CopiedModel, NotCopied, RandomStates, preserved
from tracelyze.collectors.signals.probing.mixing import Mixing
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.safe_computing import may_compute

AT_STEPS = (1, 4)  # steps of the process that have ended: the first one holds what is made only once
MOST_SECONDS = 20.0  # A first probe that took longer is the only one.
MOST_MODELS = 4


class Probe(Signal):
    name = "probe"
    needs = UNSEEN
    default_on = False
    option = "--probe"
    columns = (
        *columns_of("replays", "step model outputs gradients module kind site deterministic device failed"),
        *columns_of(
            "mixings",
            "step model samples along shape loader others by_position same_others repeats squares halves "
            "along_samples along_others position_table module kind site failed",
        ),
    )
    about = "A copy of the model called again at two early steps: does a step repeat, do samples reach each other?"
    cost = "at two steps, up to ten forwards and two backwards of a copy; memory for two more models"
    pausable = ("forward",)
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._probes: dict[int, int] = {}  # number of probes, by model
        self._only_one = False

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        steps = self.progress.steps
        if steps > AT_STEPS[-1] + MOST_MODELS or self._only_one:
            self.pause(math.inf)
            return
        taken = self._probes.get(call.model.number, 0)
        if call.mode != GRAD or not call.in_train or call.replayed or taken >= len(AT_STEPS) or steps < AT_STEPS[taken]:
            return
        module = call.model.module()
        if module is None or (not taken and len(self._probes) >= MOST_MODELS):
            return
        self._probes[call.model.number] = taken + 1
        begin = perf_counter()
        self._probe(call, module, args, kwargs)
        self._only_one = perf_counter() - begin > MOST_SECONDS

    def _probe(self, call: Call, module: Any, args: Any, kwargs: Any) -> None:
        torch = self.torch
        rows: dict[str, dict[str, Any]] = {"replays": {}, "mixings": {}}
        try:
            if not may_compute(torch, torch.cuda.is_available()):
                raise NotCopied("something traces or counts what the program computes")
            with self.context.unrecorded(), preserved(torch, module):
                states = RandomStates(torch)
                copied = CopiedModel(torch, module, args, kwargs)
                self._try(rows["replays"], lambda: replays.compare(torch, copied, states))
                self._try(rows["mixings"], lambda: self._mixing(call, copied, states))
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            for row in rows.values():
                row.setdefault("failed", _reason(error))
        for table, row in rows.items():
            if row.get("module") is not None:
                row["site"] = self._site(module, str(row["module"]))
            self.context.emit(table, {"step": self.progress.steps, "model": call.model.number, **row})

    def _try(self, row: dict[str, Any], compare: Any) -> None:
        try:
            row |= compare()
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            row["failed"] = _reason(error)

    def _site(self, module: Any, name: str) -> int | None:
        """Where forward of the program's own class begins that the module of this name is, or is a part of."""
        core = wrapped(module)
        parts = name.split(".") if name else []
        for end in range(len(parts), -1, -1):
            part = core.get_submodule(".".join(parts[:end]))
            code = getattr(inspect.unwrap(type(part).forward), "__code__", None)
            if code is not None and not is_library(code.co_filename):
                return self.program.sites.add("forward", code.co_filename, code.co_firstlineno, "forward")
        return None

    def _mixing(self, call: Call, copied: CopiedModel, states: RandomStates) -> dict[str, Any]:
        torch = self.torch
        given = first_tensor(torch, copied.args, copied.kwargs)
        if given is None or not given.dim():
            raise NotCopied("the model is given no tensor of samples")
        batch = call.batch
        samples = batch.samples if batch is not None else None
        along = 0
        if samples is not None:
            places = [place for place in (0, 1) if given.dim() > place and given.shape[place] == samples]
            if not places:
                raise NotCopied("what the model is given has no dimension of the size of the loader's batch")
            if len(places) > 1 and given.dim() > 2:
                raise NotCopied("two dimensions are as long as the batch: nobody knows which of them holds the samples")
            along = places[0]
        counted = int(given.shape[along])
        row = Mixing(torch, copied, states, counted, along, given).compare()
        return row | {"loader": samples is not None}


def _reason(error: Exception) -> str:
    if isinstance(error, NotCopied):
        return str(error)
    return f"a copy of the model could not be called: {type(error).__name__}"
