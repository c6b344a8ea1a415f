"""Labels that are handed to a model which computes its loss by itself, without a loss function of torch.

Fused kernels do that (Liger, the chunked losses of TRL): the ids and labels of a batch are then seen only as they enter
the model. By the convention of transformers the model moves the labels by one position: label `t + 1` is the target of
position `t`, and -100 does not count.
"""

from __future__ import annotations

import math
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.models import wrapped
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors import embedded_ids, rows_of_ids
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen
from tracelyze.collectors.tensors.targets.sequences import IGNORED, Sequences

SAMPLED_STEPS = (0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 100, 200)  # steps since the newest optimizer began
FUNCTIONS = ("cross_entropy", "nll_loss")  # that compute the loss of a language model where nothing is fused
NAME = "the model's own loss"
LIBRARIES = ("transformers.", "peft.")
PLAIN = frozenset({"input_ids", "labels", "shift_labels", "attention_mask"})  # others may tell samples apart


class GivenLabels(Signal):
    name = "given_labels"
    needs = UNSEEN
    columns = columns_of(
        "loss_calls",
        "step function site loader training reduction input_shape target_shape target_integer ignored pad_share "
        "pad_rows pad_target pad_same pad_elsewhere pad_behind pad_begins ignore_index",
        *rows_of_ids.COLUMNS,
    )
    about = "Ids and labels that enter a model which computes its loss without a loss function of torch (fused losses)."
    cost = "nothing where the model is given no labels or calls a loss function; else 500 us in a dozen steps"
    pausable = ("forward",)
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._pending = PendingRows(context.emit, "loss_calls")
        self._begun = 0  # steps of the process when the newest optimizer stepped first
        self._computed = False  # by a function of torch, since then

    def first_step(self, tracked: Tracked) -> None:
        self._begun, self._computed = self.progress.steps, False
        self.resume()

    def loss_call(self, function: str, args: Any, kwargs: Any, value: Any) -> None:
        self._computed = self._computed or function in FUNCTIONS

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        ids, labels = kwargs.get("input_ids"), kwargs.get("labels")
        if self._computed or labels is None:
            self._wait()
            return
        if call.mode != GRAD or not self._comparable(ids, labels) or not may_compute(self.torch, ids.is_cuda):
            return
        row = {
            "step": self.progress.steps,
            "function": NAME,
            "site": self.program.sites.here("loss"),
            "loader": self.progress.loader,
            "training": True,
            "reduction": "mean",
            "input_shape": "x".join(map(str, ids.shape)),
            "target_shape": "x".join(map(str, labels.shape)),
            "target_integer": True,
            "ignore_index": float(IGNORED),
        }
        with unseen(self.torch), self.torch.no_grad():
            found = self._found(ids.detach(), labels.detach())
            found |= self._seen_across(call, args, kwargs)
        self._pending.put([row], Readback.of_columns(self.torch, found))
        self._wait()

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _wait(self) -> None:
        """Pause until the next sample; for good, if there is nothing to sample."""
        steps = self.progress.steps - self._begun
        following = math.inf if self._computed else next((step for step in SAMPLED_STEPS if step > steps), math.inf)
        self.pause(self._begun + following)

    def _comparable(self, ids: Any, labels: Any) -> bool:
        kinds = (self.torch.int64, self.torch.int32)
        both = isinstance(ids, self.torch.Tensor) and isinstance(labels, self.torch.Tensor)
        if not both or not is_plain(self.torch, ids) or not is_plain(self.torch, labels):
            return False
        whole = ids.dtype in kinds and labels.dtype in kinds and ids.device == labels.device
        return bool(whole and ids.dim() == 2 and ids.shape == labels.shape and ids.shape[1] > 1)

    def _found(self, ids: Any, labels: Any) -> dict[str, Any]:
        """Columns of the row, as tensors without dimensions."""
        target = self.torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        sequences = Sequences(ids, target).first(embedded_ids.ROWS, embedded_ids.COLUMNS)
        found = rows_of_ids.columns(self.torch, [], sequences)
        found |= embedded_ids.padding(self.torch, sequences)
        return found | {"ignored": (sequences.target[:, :-1] == IGNORED).double().mean()}

    def _seen_across(self, call: Call, args: Any, kwargs: Any) -> dict[str, Any]:
        """1 where a model of a library is given nothing that tells the samples of a row apart: no positions, lengths or
        blocks, and at most a mask that hides padding. Such models read nothing of the kind off the ids."""
        module = call.model.module()
        library = type(wrapped(module)).__module__.startswith(LIBRARIES) if module is not None else False
        tensors = {name: one for name, one in kwargs.items() if isinstance(one, self.torch.Tensor) and one.dim()}
        mask = tensors.get("attention_mask")
        if not library or args or not tensors.keys() <= PLAIN or (mask is not None and mask.dim() != 2):
            return {}
        ones = self.torch.ones((), device=tensors["input_ids"].device)
        if mask is None:
            return {"crosses": ones}
        hides = is_plain(self.torch, mask) and mask.device == ones.device
        return {"crosses": self.torch.where(mask.amax() <= 1, ones, math.nan)} if hides else {}
