"""What the script hands to torch's loss functions: shapes, the range of the values, and the operation that made them.

Most mistakes around a loss leave it running: probabilities where logits belong, a softmax over the batch, shapes that
broadcast. They show in the arguments of the call, whichever way the loss is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracelyze.collectors.cadence import loss_sampling
from tracelyze.collectors.internals.private_names import ANY_AUTOCAST, DISPATCH_MODES, SAVED, TRANSFORMS, find
from tracelyze.collectors.program.modules import two_models
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.precision.autocast import dtype_code
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors import embedded_ids, graphs, loss_targets, rows_of_ids, saved_values
from tracelyze.collectors.tensors.attention import next_seen
from tracelyze.collectors.tensors.graphs import COPIES, LIMITS, SQUEEZES, TURNS, VIEWS
from tracelyze.collectors.tensors.loss_targets import CLASS_LOSSES, some
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.targets import kept_order, label_columns
from tracelyze.collectors.tensors.targets.sequences import IGNORED, Targets
from tracelyze.collectors.tensors.written_out import squashed_twice

CLASS_TARGETS = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
ANSWERS = dict(zip(CLASS_TARGETS, (None, None, 0.5, 0.0), strict=True))  # above which score the answer is 1
BY_SHAPE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")  # of which shapes alone tell something
MAX_TARGETS = 1024
SEQUENCE_LOSSES, SEQUENCE_SAMPLES = ("cross_entropy", "nll_loss"), 8  # at each line: a graph is walked for them
LABEL_SAMPLES = 16  # at each line: targets are set beside the numbers that the model was given
IN_TURN = 2  # steps of the process since that of an optimizer which steps together with others
MAX_TRAININGS = 32  # trainings of a process whose first losses are all sampled once more
WALK_DEPTH = 12
# Operations that hand values on as they are; those in MOVING may change which dimension is which, those in CHOOSING
# may leave values out.
KEEPING = (*COPIES, *LIMITS, "_DDPSink")
MOVING = (*VIEWS, *TURNS, *SQUEEZES, "Expand")
GUARDING = (*LIMITS, "Add", "ToCopy")  # log(p + 1e-8)
CHOOSING = ("Slice", "Select", "Index", "IndexSelect", "MaskedSelect", "Split", "Unbind", "Cat", "Stack")


class LossInputs(Signal):
    name = "loss_inputs"
    needs = (DISPATCH_MODES, TRANSFORMS, SAVED)
    columns = columns_of(
        "loss_calls",
        "step function site loader training reduction input_shape target_shape target_integer made_by made_dim "
        "made_whole made_from lowest highest sum_error log_sum_error target_lowest target_highest value ignored "
        "weight_of_one varies target_varies ids_compared ids_equal ids_ahead sees_later pad_share pad_rows pad_target "
        "pad_same pad_elsewhere pad_behind pad_begins ignore_index autocast",
        *next_seen.COLUMNS,
        *rows_of_ids.COLUMNS,
        *two_models.COLUMNS,
        *label_columns.COLUMNS,
        *kept_order.COLUMNS,
        "answer answer_same",
    )
    about = "Arguments of torch's loss functions: shapes, ranges, whether rows are probabilities, and what made them."
    cost = "100 us per sample (1 to 50 ms at the first few of a sequence model), 2 us per call that is not sampled"
    sampled = True
    every = loss_sampling.EVERY
    first_steps = 20  # calls of each function

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._counts: dict[tuple[str, bool], int] = {}
        self._passes: dict[str, loss_sampling.EvaluationPasses] = {}  # of evaluations, by function
        self.context.losses.every = min(self.meter.base, self.context.losses.every)
        self._sequences: dict[tuple[str, int | None], int] = {}
        self._labels: dict[tuple[str, int | None], int] = {}
        saved_values.watch(self.torch)
        self._transformed = False  # whether a loss was met within a transform of torch.func
        self._empty: set[int | None] = set()  # lines of losses over no elements
        self._pending = PendingRows(context.emit, "loss_calls")

    def loss_call(self, function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> None:
        torch = self.torch
        key = (function, torch.is_grad_enabled())
        count = self._counts[key] = self._counts.get(key, -1) + 1
        given: Any = args[0] if args else kwargs.get("input")
        if not key[1] and type(given) is torch.Tensor and not given.numel():
            self._mean_of_nothing(function, kwargs)
        if not self._wanted(count, begins_a_pass=not key[1] and self._begins_a_pass(function)):
            return
        self._pending.release()
        target: Any = args[1] if len(args) > 1 else kwargs.get("target")
        if not self._can_be_read(given, target):
            if self._is_transformed(given, target):
                self._inside_a_transform(function, given, target, kwargs)
            return
        row = self._shapes(function, given, target, kwargs) | {
            "autocast": dtype_code(torch) if find(torch, ANY_AUTOCAST) else 0,
        }
        if given.grad_fn is not None:
            row["made_by"], row["made_dim"], row["made_whole"] = origin(given.grad_fn, given.dim())
            row["made_from"] = squashed_twice.made_from(given.grad_fn)
        if row["training"]:
            row["target_trained"] = 0
        if row["training"] and target.grad_fn is not None:
            stepping = [one for one in self.program.optimizers.tracked() if row["step"] - one.at_step <= IN_TURN]
            row |= two_models.columns(given, target, stepping, self.program.calls.modules())
        found = self._values(function, given, target, value)
        with torch.no_grad():
            found |= loss_targets.columns(torch, function, given, target, args, kwargs)
            found |= loss_targets.weight_of_one(torch, function, given, args, kwargs)
        if row["training"] and function in SEQUENCE_LOSSES and row["reduction"] != "none":
            found |= self._sequence_values(row, given, target, args, kwargs)
        if row["training"]:
            found |= self._label_columns(row, given, target)
            with torch.no_grad():
                known, order = kept_order.rows_and_order(torch, target)
            row |= known
            found |= order
        self._emit(row, found)

    def _mean_of_nothing(self, function: str, kwargs: Mapping[str, Any]) -> None:
        """Note a loss of an evaluation that is a mean over no elements, and so NaN: once for each line."""
        site = self.program.sites.here("empty-loss")
        if str(kwargs.get("reduction", "mean")) == "mean" and site not in self._empty:
            self._empty.add(site)
            self.context.record_event("empty-loss", function)

    def _shapes(self, function: str, given: Any, target: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Columns that need no value."""
        return {
            "step": self.progress.steps,
            "function": function,
            "site": self.program.sites.here("loss"),
            "loader": self.progress.loader,
            "training": self.torch.is_grad_enabled() and given.requires_grad,
            "reduction": "sum" if kwargs.get("size_average") is False else str(kwargs.get("reduction", "mean")),
            "input_shape": shape_of(given),
            "target_shape": shape_of(target),
            "target_integer": not target.dtype.is_floating_point,
        }

    def _inside_a_transform(self, function: str, given: Any, target: Any, kwargs: Mapping[str, Any]) -> None:
        """Within torch.func: the shapes, and what made the input where torch.func.grad runs innermost and keeps it."""
        if not self._transformed:
            self._transformed = True
            self.context.record_event("transformed", function)
        known = given.grad_fn is not None
        if function in BY_SHAPE or known:
            row = self._shapes(function, given, target, kwargs)
            if known:
                row["made_by"], row["made_dim"], row["made_whole"] = origin(given.grad_fn, given.dim())
                row["made_from"] = squashed_twice.made_from(given.grad_fn)
            self.context.emit("loss_calls", row)

    def _is_transformed(self, *tensors: Any) -> bool:
        """Whether a transform of torch.func alone keeps these from being read: they have their shapes all the same."""
        torch = self.torch
        if not all(type(one) is torch.Tensor and one.layout is torch.strided for one in tensors):
            return False
        return torch._C._functorch.peek_interpreter_stack() is not None and not torch._C._len_torch_dispatch_stack()

    def _begins_a_pass(self, function: str) -> bool:
        passes = self._passes.get(function)
        if passes is None:
            passes = self._passes[function] = loss_sampling.EvaluationPasses()
        return passes.begins(self.progress.steps)

    def _wanted(self, count: int, begins_a_pass: bool) -> bool:
        """Whether to sample the `count`-th call that is dispatched; of a training not all calls are."""
        losses, meter = self.context.losses, self.meter
        if begins_a_pass and not meter.fixed:
            return meter.decide(True)
        if not losses.next or count < meter.first_steps:
            return meter.due(count)
        turn, off = divmod(losses.count, losses.every)
        doubled = turn & (turn - 1) == 0  # so rare that the budget need not be asked
        return meter.decide(not off and (doubled or turn % math.ceil(meter.stride / losses.every) == 0))

    def first_step(self, tracked: Tracked) -> None:
        if tracked.index <= MAX_TRAININGS:
            self._sequences.clear()
            self._labels.clear()
            self._passes.clear()
            self._counts.clear()  # another training begins: its losses are sampled as often as the first one's

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _can_be_read(self, *tensors: Any) -> bool:
        """Plain tensors with values. Under a transform (vmap) or a mode that counts operations, ours would be seen."""
        torch = self.torch
        plain = (torch.Tensor, torch.nn.Parameter)
        if not all(type(one) in plain and one.layout is torch.strided and one.numel() for one in tensors):
            return False
        if any(one.device != tensors[0].device for one in tensors) or tensors[0].device.type not in ("cpu", "cuda"):
            return False
        if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
            return False
        return not (tensors[0].is_cuda and torch.cuda.is_current_stream_capturing())

    def _values(self, function: str, given: Any, target: Any, value: Any) -> dict[str, Any]:
        """Columns of the row whose values are on the device, as tensors without dimensions."""
        torch = self.torch
        found: dict[str, Any] = {}
        with torch.no_grad():
            if given.dtype.is_floating_point:
                classes = CLASS_LOSSES.get(function) if given.dim() > 1 else None
                part = some(given.detach(), classes).float()
                found["lowest"], found["highest"] = part.amin(), part.amax()
                if classes is not None:
                    found["sum_error"] = (part.sum(classes) - 1.0).abs().amax()
                    found["log_sum_error"] = part.logsumexp(classes).abs().amax()
            samples = (
                int(target.numel()) if target.dim() and target.numel() == target.shape[0] else 0
            )  # of one label each
            if function in ANSWERS and samples > 1 and given.dim():
                answers = _answers(function, given.detach()[:MAX_TARGETS])
                if answers is not None:
                    found["answer"], found["answer_same"] = answers[0], (answers == answers[0]).float().mean()
            if function in CLASS_TARGETS and samples:
                labels = target.detach().reshape(-1)[:MAX_TARGETS]
                found["target_lowest"], found["target_highest"] = labels.amin(), labels.amax()
            if isinstance(value, torch.Tensor) and value.numel() == 1 and value.device == given.device:
                found["value"] = value.detach()
        return found

    def _sequence_values(
        self, row: dict[str, Any], given: Any, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Columns that set the targets beside the ids that the model embedded, in a few samples of each line."""
        torch, key = self.torch, (row["function"], row["site"])
        samples = self._sequences.get(key, 0)
        if samples >= SEQUENCE_SAMPLES or given.grad_fn is None or given.dim() < 2 or not row["target_integer"]:
            return {}
        option = loss_targets.options(args, kwargs)
        targets = Targets(target, option.get("ignore_index", IGNORED), option.get("weight"))
        row["ignore_index"] = float(targets.ignored)
        with torch.no_grad():
            found = embedded_ids.columns(torch, given, targets)
        self._sequences[key] = samples + (1 if found else SEQUENCE_SAMPLES // 2)
        return found

    def _label_columns(self, row: dict[str, Any], given: Any, target: Any) -> dict[str, Any]:
        """Columns that set one target per sample beside what the model was given, in a few samples of each line."""
        key = (row["function"], row["site"])
        samples = self._labels.get(key, 0)
        if samples >= LABEL_SAMPLES or given.grad_fn is None or not given.dim() or self._read_out_again():
            return {}
        with self.torch.no_grad():
            found = label_columns.columns(self.torch, given, target)
        self._labels[key] = samples + (1 if found else LABEL_SAMPLES // 4)
        return found

    def _read_out_again(self) -> bool:
        """Whether one of several trained models is to find in what another one made what that one was given.

        A generator is given a code, and the network that reads it out of its images is trained by that code (InfoGAN).
        """
        latest = self.program.calls.latest
        return latest is not None and latest.carries_on and len(self.program.optimizers.tracked()) > 1

    def _emit(self, row: dict[str, Any], values: dict[str, Any]) -> None:
        if values:
            self._pending.put([row], Readback.of_columns(self.torch, values))
        else:
            self.context.emit("loss_calls", row)


def _answers(function: str, given: Any) -> Any:
    """The class that is answered for each sample, of scores [samples, classes] or of one score for each sample."""
    border = ANSWERS[function]
    if border is None:
        return given.argmax(1) if given.dim() == 2 else None
    return (given.reshape(-1) > border).long() if given.numel() == given.shape[0] else None


def shape_of(tensor: Any) -> str:
    """ "32x10"; empty for a scalar."""
    return "x".join(str(size) for size in tensor.shape)


def origin(node: Any, dims: int) -> tuple[str, int | None, bool]:
    """What made a tensor, read from its autograd node: the operation behind views, casts and selections ("Softmax").

    With it the dimension that a softmax ran over (None where dimensions were moved since, or where it has none), and
    whether all of its values are there. A logarithm has the dimension of the softmax that it was taken of.
    """
    known, whole = True, True
    for _ in range(WALK_DEPTH):
        kind = saved_values.kind(node)
        if kind in MOVING:
            known = False
        elif kind in CHOOSING:
            known = whole = False
        elif kind not in KEEPING:
            softmax = _before_log(node) if kind == "Log" else node if "Softmax" in kind else None
            dim = getattr(softmax, "_saved_dim", None) if known else None
            return kind, None if dim is None else saved_values.signed(dim) % dims, whole
        following = graphs.following(node)
        if len(following) != 1 and kind not in ("Cat", "Stack"):
            return kind, None, whole
        if not following:
            return kind, None, whole
        node = following[0]
    return "", None, False


def _before_log(node: Any) -> Any:
    """The softmax that a logarithm was taken of, if nothing came between but what keeps it from log(0)."""
    for _ in range(WALK_DEPTH):
        node = graphs.only_following(node)
        if node is None:
            return None
        kind = saved_values.kind(node)
        if kind == "Softmax":
            return node
        if kind not in GUARDING:
            return None
    return None
