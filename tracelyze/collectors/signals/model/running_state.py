"""Models that evaluate with running statistics that nothing has ever set."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.private_names import BATCH_NORM, UNSEEN, find
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute

MAX_SAMPLES = 20  # at each model, as long as it is unset


class RunningState(Signal):
    name = "running_state"
    needs = (*UNSEEN, BATCH_NORM)
    columns = tuple(f"unset.{name}" for name in ("step", "model", "modules", "of", "call", "training"))
    about = "Models in eval mode whose batch normalisation has never seen a batch and was never loaded."
    cost = "10 us per module, at the first calls of a model in eval mode"
    copied_columns = ()

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._samples: dict[int, int] = {}  # by model
        self._pending = PendingRows(context.emit, "unset")
        self._normalises = find(self.torch, BATCH_NORM)

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        model = call.model
        if call.replayed or not model.sensitive or self._samples.get(model.number, 0) >= MAX_SAMPLES:
            return
        norms = [one for ref in model.sensitive if (one := ref()) is not None and self._is_idle(one)]
        if not norms:
            return
        counters = [one.num_batches_tracked for one in norms]
        torch = self.torch
        if not all(is_plain(torch, one) for one in counters) or not may_compute(torch, counters[0].is_cuda):
            return
        self._samples[model.number] = self._samples.get(model.number, 0) + 1
        with torch.no_grad():
            values = [
                (one.num_batches_tracked == 0) & (one.running_mean == 0).all() & (one.running_var == 1).all()
                for one in norms
            ]
        row = {
            "step": self.progress.steps,
            "model": model.number,
            "of": len(norms),
            "call": self._samples[model.number],
            "training": call.mode == GRAD,
        }

        def fill(late: dict[str, Any], read: list[float]) -> None:
            late["modules"] = int(sum(read))
            if not late["modules"]:
                self._samples[model.number] = MAX_SAMPLES

        self._pending.put([row], Readback(torch, values, fill))

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _is_idle(self, module: Any) -> bool:
        """Whether a module normalises with what it has stored."""
        if not isinstance(module, self._normalises) or module.training:
            return False
        counted: bool = module.track_running_stats and module.num_batches_tracked is not None
        return counted and module.running_mean is not None
