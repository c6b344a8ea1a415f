"""The loss of every step as the script's own value, without GradScaler's factor, and how many backwards it had."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from typing import Any

from tracelyze.collectors.internals.private_names import SAVED
from tracelyze.collectors.program.consumed.step_backwards import Backward, samples_of
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors import saved_values
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import has_memory

WALK_FIRST, WALK_EVERY = 10, 50  # backwards whose graph is searched for a constant divisor
WALK_DEPTH = 8
MEAN, SUM = 1, 2  # torch._C._Reduction: how autograd saves the `reduction` of a loss function
LINES_FIRST, LINES_EVERY = 50, 16  # losses and backwards whose line is recorded: walking up the stack is expensive
STEP_LINES_EVERY = 50  # the same for steps: as often as expensive samples of gradients, so that it is the same step
MAX_SCALED = 8  # losses that a scaler has scaled and no backward has met


class Loss(Signal):
    """Which backwards a step consumes is found out beside it (program/consumed/step_backwards.py)."""

    name = "loss"
    needs = (SAVED,)
    about = "The script's own loss without GradScaler's factor, backwards per step, batch size, divisor."
    cost = "15 us a backward"
    pausable = ("before_step",)
    copied_columns = ("backwards", "batch_size")
    columns = ("steps.loss", "steps.backwards", "steps.loss_divisor", "steps.loss_is_mean", "steps.batch_size")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        saved_values.watch(self.torch)
        self._scaled: list[tuple[weakref.ref[Any], Any]] = []
        self._line_known = False
        self._losses = 0
        self._several: dict[int, bool] = {}  # by optimizer: whether its latest step consumed several backwards
        # By optimizer: the number of micro-batches by which the script divides the loss.
        self._divided_by: dict[int, float] = {}
        self._tensor: Any = self.torch.Tensor

    def scale(self, original: Any, scaled: Any) -> None:
        if isinstance(scaled, self.torch.Tensor) and has_memory(self.torch, original):
            self.context.fast_path.interrupt()  # the loss is another one than backward is called on
            self._scaled = [*self._scaled[1 - MAX_SCALED :], (weakref.ref(scaled), original.detach())]

    def loss(self, value: Any) -> None:
        """A loss function returned: where a framework calls backward, its line is the one that the user wrote."""
        self._losses += 1
        sampled = self._losses <= LINES_FIRST or self._losses % LINES_EVERY == 0 or self.context.losses.next
        if sampled and value.requires_grad:
            self.program.sites.here("loss")

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        backward = self.program.backwards.running
        assert backward is not None
        if backward.value is not None:  # It was skipped: no line of the script calls it now.
            self._line_known = True
            return
        self._note_line(backward)
        if not roots:
            return
        if not all(type(one) is self._tensor and one.numel() == 1 and one.is_floating_point() for one in roots):
            return
        if any(one.is_meta for one in roots):  # it has no value
            return
        value, scale = self._unscaled(roots[0]) if self._scaled else (roots[0], 1.0)
        self._note_divisor(backward, roots[0], scale)
        backward.value = _now_or_later(value)
        for other in roots[1:]:  # `autograd.backward([first, second])` adds the gradients of both
            value = self._unscaled(other)[0] if self._scaled else other
            backward.value = backward.value + _now_or_later(value)

    def _note_line(self, backward: Backward) -> None:
        """The line of the script that calls this backward: of some, and of all where gradients accumulate."""
        count = self.progress.backwards
        accumulates = self.program.backwards.unused > 0 or count <= LINES_FIRST or any(self._several.values())
        self._line_known = accumulates or count % LINES_EVERY == 0
        if self._line_known:
            self.progress.backward_site = line = self.program.sites.here("backward")
            # Lines tell the terms of a loss from micro-batches: one that is known by chance would make it another loss.
            backward.line = line if accumulates else None

    def _note_divisor(self, backward: Backward, root: Any, scale: float) -> None:
        """Note the number by which the script divided this loss: for some losses, and for those that may be a
        micro-batch's. `scale` is the scaler's factor in it."""
        backwards, count = self.program.backwards, self.progress.backwards
        # The second backward of a step: gradients accumulate. Where they do, the last step may have a single one.
        may_accumulate = backwards.unused == 1 or (len(backwards.of_step) > 1 and bool(self._divided_by))
        if may_accumulate or count <= WALK_FIRST or count % WALK_EVERY == 0:
            backward.sampled_only = not may_accumulate
            divisor, backward.is_part, backward.is_mean = own_divisor(self.torch, root.grad_fn)
            if divisor is not None and math.isfinite(scale):
                backward.divisor = divisor * scale

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        training = self.program.trainings.current
        if training is None and not self._line_known:  # the line of a training that has just begun
            self.progress.backward_site = self.program.sites.here("backward")
        backward = self.program.backwards.running
        value = None if backward is None else backward.value
        if training is None or type(value) is not float:
            return
        if not training.losses(self.program.trainings.reached_models).is_usual(value):
            self.context.raise_alert()  # The sampled signals sample this step, too.

    def _unscaled(self, root: Any) -> tuple[Any, float]:
        """The loss without the scaler's factor, and that factor where it can be read without waiting."""
        for scaled, original in self._scaled:
            if id(scaled()) == id(root):
                if original.device.type != "cpu" or original.item() == 0:
                    return original, math.nan
                return original, root.detach().item() / original.item()
        return root, 1.0

    def next_full_backward(self) -> float:
        if all(self._several.get(one.index) for one in self.program.optimizers.active()):
            return math.inf  # A backward of every step is searched.
        return self.progress.backwards + WALK_EVERY - self.progress.backwards % WALK_EVERY

    def before_step(self, tracked: Any) -> None:
        self.program.sites.here("step")

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        if self.progress.steps >= LINES_FIRST and not self.paused:
            self.pause(self.progress.steps // STEP_LINES_EVERY * STEP_LINES_EVERY + STEP_LINES_EVERY)
        if self._scaled:  # nothing of a loss whose graph is gone stays alive
            self._scaled = [pair for pair in self._scaled if pair[0]() is not None]
        own = self.program.backwards.of_step
        self._several[tracked.index] = len(own) > 1
        row["backwards"], row["batch_size"] = len(own), samples_of(own)
        if not own and tracked.count > 1 and not row.get("skipped"):
            self.program.sites.here("step-again")
        if len(own) == 1 and own[0].value is not None:  # nearly always
            one, divisor, factor = own[0], own[0].divisor, 1.0
            row["loss_divisor"], row["loss_is_mean"] = divisor, one.is_mean
            if self._divided_by and divisor is not None:  # perhaps the last of a pass
                factor = divisor if divisor == self._divided_by.get(tracked.index) else 1.0
            if type(one.value) is float:
                row["loss"] = one.value * factor
            else:
                one.factor = factor
                self._read_later([one.value], [factor], tracked)
        else:
            self._of_several(own, row, tracked)

    def _of_several(self, own: list[Backward], row: dict[str, Any], tracked: Any) -> None:
        """The same of what is not so simple: several backwards of one step, or none.

        Micro-batches are averaged, terms of one loss (a critic's of real and of fake samples) add up: see `weights`."""
        # An optimizer that calls a closure may evaluate the loss several times (LBFGS): the first is the step's, beside
        # those of micro-batches before it (Lightning runs the last one of an accumulation in a closure).
        closure = self.progress.backwards > self.progress.backwards_at_step and not row.get("skipped")
        divisor = None
        for one in own:
            divisor = divisor if one.divisor is None else one.divisor
        parts = any(one.is_part for one in own)
        row["loss_divisor"] = float(len(own)) if parts else divisor  # Parts of one mean are divided as they should be.
        known = [one.is_mean for one in own if one.is_mean is not None]
        row["loss_is_mean"] = all(known) if known else None
        valued = [one for one in own if one.value is not None]
        if closure:
            at_step = self.progress.backwards_at_step
            valued = valued[: sum([one.number <= at_step for one in valued]) + 1]
        if not valued:
            return
        if len({one.divisor for one in own if one.divisor is not None}) > 1:
            divisor = None  # Each was divided by something of its own, not by a number of micro-batches.
        factors = [1.0] * len(valued) if parts else weights(valued, divisor, self._divided_by.get(tracked.index))
        if divisor is not None and divisor > 1.0 and not parts and factors == [1.0] * len(valued):
            self._divided_by[tracked.index] = divisor
        for one, factor in zip(valued, factors, strict=True):
            one.factor = factor
        values = [one.value for one in valued]
        if isinstance(values[0], float):
            row["loss"] = _weighted_sum(values, factors)
        else:
            self._read_later(values, factors, tracked)

    def _read_later(self, values: list[Any], factors: list[float], tracked: Any) -> None:
        """The loss of the step is on a device. That it is out of the ordinary is known when it is read."""
        losses = tracked.training.losses(self.program.trainings.reached_models)

        def fill(row: dict[str, Any], read: list[float]) -> None:
            row["loss"] = _weighted_sum(read, factors)
            if not all(list(map(losses.is_usual, read))):
                self.context.raise_alert()

        self.context.defer(Readback(self.torch, values, fill))


def _now_or_later(value: Any) -> Any:
    """The number that a loss is, or the scalar on a device that stands for it until it is read."""
    return value.item() if value.is_cpu else value.detach()


def weights(backwards: list[Backward], divisor: float | None, usual: float | None = None) -> list[float]:
    """What the loss of each backward counts in the loss of their step.

    Backwards of different batches are micro-batches: the step's loss is their mean. So are those of one batch that one
    line calls (chunks). Where several lines are called equally often with one batch, they are terms of the loss and add
    up. Losses that the script has divided by the number of micro-batches make up the mean as they are; where a step has
    fewer of them than the `usual` ones, by whose number it still divides, they are multiplied by it first.
    """
    total = len(backwards)
    keys = [(id(one.calls[0].batch) if one.calls else None, one.line) for one in backwards]
    by_line, in_batch = Counter(keys), Counter([batch for batch, _ in keys])
    terms = len(set(by_line.values())) == 1
    numbers = {total, len(in_batch), max(Counter([line for _, line in keys]).values())}
    if divisor is not None and any(number > 1 and math.isclose(divisor, number) for number in numbers):
        return [1.0] * total
    if divisor is not None and divisor == usual and max(numbers) < usual:
        return [usual / max(numbers)] * total
    return [1.0 / len(in_batch) / (by_line[key] if terms else in_batch[key[0]]) for key in keys]


def _weighted_sum(values: list[float], factors: list[float]) -> float:
    return sum([value * factor for value, factor in zip(values, factors, strict=True)])


def divisions(torch: Any, node: Any) -> tuple[list[float | None], Any]:
    """The constants by which a loss was divided (or multiplied with the inverse of), the last division first, and the
    node before the first division.

    Reads the constants that autograd saved for the outermost divisions and multiplications. A constant is None where it
    cannot be read: on a device that would wait for the device.
    """
    constants: list[float | None] = []
    for _ in range(WALK_DEPTH):
        if node is None:
            break
        kind = saved_values.operation(node)
        inputs = node.next_functions
        if kind == "NegBackward0":
            node = inputs[0][0]
            continue
        if kind not in ("DivBackward0", "MulBackward0") or len(inputs) != 2 or inputs[1][0] is not None:
            break
        other = saved_values.saved_other(node)
        if isinstance(other, torch.Tensor):
            other = other.item() if other.numel() == 1 and other.is_cpu else None
        if not other or not math.isfinite(other):
            constants.append(None)
        else:
            constants.append(other if kind == "DivBackward0" else 1.0 / other)
        node = inputs[0][0]
    return constants, node


def own_divisor(torch: Any, node: Any) -> tuple[float | None, bool, bool]:
    """The number by which the loss with this node was divided beyond its own mean, whether it is a part of the step's
    mean, and whether it is a mean over the micro-batch, or a sum of such, the first of which is divided by nothing."""
    constants, inner = divisions(torch, node)
    if is_mean(inner):
        return product(constants), False, True
    if inner is not None and saved_values.operation(inner) == "AddBackward0":
        if adds_parts(torch, inner):
            return None, True, False
        terms = [divisions(torch, term) for term, _ in inner.next_functions]
        whole = all(is_mean(mean) for _, mean in terms) and product(terms[0][0]) == 1.0
        return product(constants), False, whole
    return *beside_own_mean(torch, constants, inner), False


def is_mean(node: Any) -> bool:
    """Whether a loss function, or the script itself, averages what came before."""
    if getattr(node, "_saved_reduction", None) == MEAN:
        return True
    own = node is not None and saved_values.operation(node) == "MeanBackward0"
    return own and bool(getattr(node, "_saved_self_sym_numel", 0) > 1)


def product(constants: list[float | None]) -> float | None:
    """The product of these divisors; None where one is not known."""
    known = [one for one in constants if one is not None]
    return math.prod(known) if len(known) == len(constants) else None


def adds_parts(torch: Any, node: Any) -> bool:
    """Whether the terms of this sum are parts of the step's mean: all of them (a smoothed cross-entropy of the Hugging
    Face Trainer), or one whose targets are counted, beside which an auxiliary loss stands (a mixture of experts)."""
    found = []
    for term, _ in node.next_functions:
        constants, inner = divisions(torch, term)
        is_part = beside_own_mean(torch, constants, inner)[1]
        if getattr(inner, "_saved_reduction", None) == SUM:
            is_part = is_part and isinstance(saved_values.saved(inner, "total_weight"), torch.Tensor)
            if is_part:
                return True
        found.append(is_part)
    return all(found)


def beside_own_mean(torch: Any, constants: list[float | None], node: Any) -> tuple[float | None, bool]:
    """The divisor beyond that of the micro-batch's own mean, and whether the loss is a part of the step's mean.

    A sum over the targets of a micro-batch that is divided by their number is its own mean, whatever it is divided by
    after that. Divided by the targets of the whole step it is a part of the step's mean, as in the Hugging Face Trainer
    since 4.46 (num_items_in_batch): the step's loss is then the sum of such losses. Counts of targets on a device are
    not read. So is a sum over a tensor that is divided by more than the tensor has elements: other micro-batches were
    counted, too (SFTTrainer of TRL). A masked mean is divided by fewer.
    """
    divisor = product(constants)
    first = constants[-1] if divisor is not None and len(constants) > 1 else None  # and others after it
    if divisor is not None and node is not None and saved_values.operation(node) == "SumBackward0":
        elements = math.prod(getattr(node, "_saved_self_sym_sizes", (math.inf,)))
        if first is not None and 1.0 < first <= elements:
            return divisor / first, False
        return divisor, divisor > elements
    if getattr(node, "_saved_reduction", None) != SUM or divisor == 1.0:
        return divisor, False
    targets = saved_values.saved(node, "total_weight")
    if divisor is None or not isinstance(targets, torch.Tensor) or targets.device.type != "cpu" or not targets:
        return divisor, True
    whole = float(targets)
    if first is not None and math.isclose(first, whole, rel_tol=1e-6):
        return divisor / first, False
    return divisor / whole, divisor > whole * (1.0 + 1e-6)
