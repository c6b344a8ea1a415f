"""Losses that the script writes out by itself: the shapes of what meets in them, and where a linear layer makes the
prediction, how much it and the target differ from sample to sample."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.private_names import SAVED, UNSEEN
from tracelyze.collectors.program.modules import two_models
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors import embedded_ids, loss_targets, rows_of_ids, saved_values
from tracelyze.collectors.tensors.attention import next_seen
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen
from tracelyze.collectors.tensors.targets import label_columns
from tracelyze.collectors.tensors.targets.sequences import Targets
from tracelyze.collectors.tensors.written_out import squashed_twice
from tracelyze.collectors.tensors.written_out.compared import compared
from tracelyze.collectors.tensors.written_out.errors import Meeting, meeting, sides
from tracelyze.collectors.tensors.written_out.likelihoods import likelihood

IN_TURN = 2  # steps of the process since that of an optimizer which steps together with others
FIRST = 8  # backwards since the newest optimizer stepped first that are all looked at; then ever more rarely:
SPACING = 4  # after a fourth more backwards than there were
LABELS = 16  # samples of what the model was given
PAIRS = 24  # samples in which a graph is walked for the weights of two models
SEQUENCES = 8  # samples in which a graph is walked for the ids that the model was given
NAME = "written out"
OF_TWO_MODELS = "the written-out difference"  # of what two models put out
OF_LOGARITHMS = "the written-out log loss"  # of a sigmoid or a softmax whose scores come out of another one
OF_CLASSES = "the hand-written loss"  # a cross-entropy: log-probabilities of which the targets are picked


class WrittenLosses(Signal):
    name = "written_losses"
    needs = (*UNSEEN, SAVED)
    columns = columns_of(
        "loss_calls",
        "step function site loader training reduction input_shape target_shape target_integer made_by made_from "
        "meet_in varies target_varies ids_compared ids_equal ids_ahead sees_later pad_share pad_rows pad_target "
        "pad_same pad_elsewhere pad_behind pad_begins",
        *next_seen.COLUMNS,
        *rows_of_ids.COLUMNS,
        *label_columns.COLUMNS,
        *two_models.COLUMNS,
    )
    about = (
        "Losses that are written out instead of called: shapes of prediction and target, from the graph behind them."
    )
    cost = "100 us a sample, of which a run has some tens"
    copied_columns = ()

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        saved_values.watch(self.torch)
        self._begun = 0  # backwards of the process when the newest optimizer stepped first
        self._next = 0  # backwards since then at which to sample again
        self._labels = 0  # samples of what the model was given
        self._sequences = self._pairs = 0
        self._pending = PendingRows(context.emit, "loss_calls")

    def first_step(self, tracked: Any) -> None:
        self._begun, self._next = self.progress.backwards, 0
        self._labels = self._sequences = self._pairs = 0

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        count = self.progress.backwards - self._begun
        if count < self._next or not roots:
            return
        self._next = count + 1 if count < FIRST else count + count // SPACING
        root = roots[0]
        if type(root) is not self.torch.Tensor or root.dim() or root.grad_fn is None:
            return
        found = meeting(self.torch, root.grad_fn)
        if found is not None:
            row = self._row(NAME, found.given, found.target) | {"meet_in": found.operation}
            self._emit(row, self._values(found, root))
        squashed = squashed_twice.under_logarithm(root.grad_fn)
        if squashed is not None:
            last, first, sizes = squashed
            self._emit(self._row(OF_LOGARITHMS, sizes, ()) | {"made_by": last, "made_from": first}, {})
        if self._sequences < SEQUENCES:
            self._likelihood(root)
        if self._pairs < PAIRS:
            self._two_models(root)

    def _likelihood(self, root: Any) -> None:
        """A row for a cross-entropy that is written out, over sequences of ids."""
        torch = self.torch
        if not is_plain(torch, root) or not may_compute(torch, root.is_cuda):
            return
        with unseen(torch), torch.no_grad():
            picked = likelihood(torch, root.grad_fn)
            if picked is None:
                return
            values = embedded_ids.behind(torch, picked.node, picked.classes, Targets(picked.targets))
        self._sequences += 1 if values else SEQUENCES // 2
        if values:
            number = int(picked.targets.numel())
            self._emit(self._row(OF_CLASSES, (number, picked.classes), (number,)) | {"target_integer": True}, values)

    def _two_models(self, root: Any) -> None:
        """A row for what one trained model puts out, set against what another one does. Where either of both may be the
        target, it is the one in eval mode; where neither is, or both, there is no teacher."""
        pairs = compared(root.grad_fn)
        steps, models = self.progress.steps, self.program.calls.modules() if pairs else []
        stepping = [one for one in self.program.optimizers.tracked() if steps - one.at_step <= IN_TURN]
        training = {number: bool(module.training) for number, module in models}
        for pair in pairs:
            ways = [(pair.given, pair.target), *([(pair.target, pair.given)] if pair.either else [])]
            found = [one for way in ways if (one := two_models.between(*way, stepping, models))]
            taught = [
                one for one in found if training.get(one.get("input_model", -1)) and not one.get("target_in_train")
            ]
            if found:
                self._pairs += 1
                columns = taught[0] if taught else found[0] | {"target_in_train": True}
                self._emit(self._row(OF_TWO_MODELS, pair.shape, pair.shape) | columns, {})
                return

    def _row(self, function: str, given: tuple[int, ...], target: tuple[int, ...]) -> dict[str, Any]:
        return {
            "step": self.progress.steps,
            "function": function,
            "site": self.program.sites.here("backward"),
            "loader": self.progress.loader,
            "training": True,
            "reduction": "mean",
            "input_shape": shape_of_sizes(given),
            "target_shape": shape_of_sizes(target),
            "target_integer": False,
        }

    def _emit(self, row: dict[str, Any], values: dict[str, Any]) -> None:
        if values:
            self._pending.put([row], Readback.of_columns(self.torch, values))
        else:
            self.context.emit("loss_calls", row)

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _values(self, found: Meeting, root: Any) -> dict[str, Any]:
        """Columns whose values are on the device, as tensors without dimensions."""
        torch = self.torch
        if found.node is None or not is_plain(torch, root) or not may_compute(torch, root.is_cuda):
            return {}
        with unseen(torch), torch.no_grad():
            both = sides(torch, found)
            if both is None:
                return {}
            given, target = both
            values = loss_targets.columns(torch, "mse_loss", given, target, (), {})
            if self._labels < LABELS:
                self._labels += 1
                values |= label_columns.behind(torch, root.grad_fn, given, target)
        return values


def shape_of_sizes(sizes: tuple[int, ...]) -> str:
    """The sizes as text, as in the other rows of the table: 32x10."""
    return "x".join(str(size) for size in sizes)
