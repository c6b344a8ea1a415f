"""Models that evaluate with running statistics, or spectral norms, that nothing has ever estimated."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from tracelyze.collectors.internals.private_names import BATCH_NORM, UNSEEN, find
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute

MAX_SAMPLES = 20  # at each model, as long as it is unset
SPECTRAL_NORM = "torch.nn.utils.spectral_norm"
"""A module that torch hides behind a function of its name. Its hook estimates in forwards in train mode only;
torch.nn.utils.parametrizations does so when it is applied, too."""
ALIGNED = 0.5
"""Cosine between the stored left vector and the product of the weight and the right one. A power iteration leaves 1;
vectors drawn at random in n dimensions give 1 / sqrt(n)."""


class RunningState(Signal):
    name = "running_state"
    needs = (*UNSEEN, BATCH_NORM)
    columns = columns_of("unset", "step model modules of spectral call training")
    about = "Models in eval mode whose batch or spectral normalisation has never seen a batch and was never loaded."
    cost = "10 us per module, at the first calls of a model in eval mode"
    copied_columns = ()

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._samples: dict[int, int] = {}  # by model
        self._pending = PendingRows(context.emit, "unset")
        self._normalises = find(self.torch, BATCH_NORM)
        self._spectral_hook: Any = getattr(sys.modules.get(SPECTRAL_NORM), "SpectralNorm", None)
        self._spectral: dict[int, list[weakref.ref[Any]]] = {}  # by model

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        model = call.model
        if call.replayed or self._samples.get(model.number, 0) >= MAX_SAMPLES:
            return
        norms = [one for ref in model.sensitive if (one := ref()) is not None and self._is_idle(one)]
        spectral = [one for ref in self._spectral_of(call) if (one := ref()) is not None and not one.training]
        if not norms and not spectral:
            return
        torch = self.torch
        read = [one.num_batches_tracked for one in norms] + [one.weight_u for one in spectral]
        if not all(is_plain(torch, one) for one in read) or not may_compute(torch, read[0].is_cuda):
            return
        self._samples[model.number] = self._samples.get(model.number, 0) + 1
        with torch.no_grad():
            values = [
                (one.num_batches_tracked == 0) & (one.running_mean == 0).all() & (one.running_var == 1).all()
                for one in norms
            ]
            values += [self._points_nowhere(one) for one in spectral]
        row = {
            "step": self.progress.steps,
            "model": model.number,
            "of": len(norms),
            "call": self._samples[model.number],
            "training": call.mode == GRAD,
        }

        def fill(late: dict[str, Any], read: list[float]) -> None:
            late["modules"], late["spectral"] = int(sum(read[: len(norms)])), int(sum(read[len(norms) :]))
            if not late["modules"] and not late["spectral"]:
                self._samples[model.number] = MAX_SAMPLES

        self._pending.put([row], Readback(torch, values, fill))

    def _spectral_of(self, call: Call) -> list[weakref.ref[Any]]:
        """The modules of a model whose weight the spectral norm of torch.nn.utils divides, held weakly."""
        number, root = call.model.number, call.model.module()
        if number not in self._spectral and root is not None and self._spectral_hook is not None:
            self._spectral[number] = [
                weakref.ref(module)
                for module in root.modules()
                if any(
                    isinstance(hook, self._spectral_hook) and hook.name == "weight"
                    for hook in module._forward_pre_hooks.values()
                )
            ]
        return self._spectral.get(number, [])

    def _points_nowhere(self, module: Any) -> Any:
        """Whether the singular vectors that a module has stored are no estimate of its weight's, as a tensor."""
        hook = next(one for one in module._forward_pre_hooks.values() if isinstance(one, self._spectral_hook))
        image = self.torch.mv(hook.reshape_weight_to_matrix(module.weight_orig), module.weight_v)
        return self.torch.dot(module.weight_u, image) < ALIGNED * image.norm()

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _is_idle(self, module: Any) -> bool:
        """Whether a module normalises with what it has stored."""
        if not isinstance(module, self._normalises) or module.training:
            return False
        counted: bool = module.track_running_stats and module.num_batches_tracked is not None
        return counted and module.running_mean is not None
