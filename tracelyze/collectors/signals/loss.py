"""The loss of every step as the script's own value, without GradScaler's factor, and how many backwards it had."""

from __future__ import annotations

import math
import weakref
from typing import Any

from tracelyze.collectors.readback import Readback
from tracelyze.collectors.signals.signal import Signal

WALK_FIRST, WALK_EVERY = 10, 50  # backwards whose graph is searched for a constant divisor
WALK_DEPTH = 8
ALERT_RATIO = 3.0  # a loss this many times its running mean makes other signals look closely


class Loss(Signal):
    """Backwards between two steps belong to every optimizer that steps before the next backward."""

    name = "loss"
    about = "The script's own loss without GradScaler's factor, backwards per step, batch size, divisor."
    cost = "15 us a backward"
    columns = ("steps.loss", "steps.backwards", "steps.loss_divisor", "steps.batch_size")

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self._scaled: tuple[weakref.ref[Any], Any] | None = None
        self._values: list[Any] = []
        self._backwards = 0
        self._divisor: float | None = None
        self._batch = 0
        self._stepped = False
        self._backwards_at_step = 0
        self._mean: float | None = None

    def scale(self, original: Any, scaled: Any) -> None:
        if isinstance(scaled, self.torch.Tensor):
            self._scaled = (weakref.ref(scaled), original.detach())

    def loss(self, value: Any) -> None:
        """A loss function returned: where a framework calls backward, its line is the one that the user wrote."""
        if value.requires_grad:
            self.recorder.sites.here("loss")

    def before_backward(self, roots: Any) -> None:
        self.recorder.backward_site = self.recorder.sites.here("backward")
        if self._stepped:
            self._values, self._backwards, self._divisor, self._batch = [], 0, None, 0
            self._stepped = False
        self._backwards += 1
        call = self.recorder.calls.latest
        if call is not None and call.batch_size is not None:
            self._batch += call.batch_size
        root = roots[0] if isinstance(roots, (tuple, list)) and roots else roots
        if type(root) is not self.torch.Tensor or root.numel() != 1:
            return
        value, factor = self._unscaled(root)
        count = self.recorder.backwards
        if count <= WALK_FIRST or count % WALK_EVERY == 0 or self._backwards == 2:  # the second: gradients accumulate
            divisor = constant_divisor(self.torch, root.grad_fn)
            if divisor is not None and math.isfinite(factor):
                self._divisor = divisor * factor
        if value.device.type == "cpu":
            value = value.item()
            self._watch(value)
        self._values.append(value)

    def _unscaled(self, root: Any) -> tuple[Any, float]:
        """The loss without the scaler's factor, and that factor where it can be read without waiting."""
        scaled, self._scaled = self._scaled, None
        if scaled is None or id(scaled[0]()) != id(root):
            return root.detach(), 1.0
        original = scaled[1]
        if original.device.type != "cpu" or original.item() == 0:
            return original, math.nan
        return original, root.detach().item() / original.item()

    def before_step(self, tracked: Any) -> None:
        self.recorder.sites.here("step")
        self._backwards_at_step = self.recorder.backwards

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        # An optimizer that calls a closure (LBFGS) evaluates the loss several times: the first is the step's.
        closure = self.recorder.backwards > self._backwards_at_step and not row.get("skipped")
        self._stepped = True
        row["backwards"] = self._backwards
        row["batch_size"] = self._batch or None
        row["loss_divisor"] = self._divisor
        if not self._values:
            return
        values = self._values[:1] if closure else self._values
        divided = self._divisor is not None and self._backwards > 1 and math.isclose(self._divisor, self._backwards)
        factor = (self._backwards if divided else 1) / len(values)
        if isinstance(values[0], float):
            row["loss"] = sum(values) * factor
        else:
            self.recorder.later(Readback(self.torch, values, lambda r, v: r.update(loss=sum(v) * factor)))

    def _watch(self, value: float) -> None:
        """Ask the sampled signals to look at this step if the loss is out of the ordinary."""
        if not math.isfinite(value) or (self._mean is not None and abs(value) > ALERT_RATIO * abs(self._mean) + 1e-6):
            self.recorder.alert = True
        if math.isfinite(value):
            self._mean = value if self._mean is None else 0.95 * self._mean + 0.05 * value


def constant_divisor(torch: Any, node: Any) -> float | None:
    """The constant by which a loss was divided (or multiplied with the inverse of) last; None if it cannot be read.

    Reads the constants that autograd saved for the outermost divisions and multiplications; a constant on a device is
    not read, because that would wait for the device.
    """
    divisor = 1.0
    for _ in range(WALK_DEPTH):
        if node is None:
            return divisor
        kind = node.name()
        inputs = node.next_functions
        if kind not in ("DivBackward0", "MulBackward0") or len(inputs) != 2 or inputs[1][0] is not None:
            return divisor
        other = node._saved_other
        if isinstance(other, torch.Tensor):
            if other.numel() != 1 or other.device.type != "cpu":
                return None
            other = other.item()
        if not other or not math.isfinite(other):
            return None
        divisor = divisor * other if kind == "DivBackward0" else divisor / other
        node = inputs[0][0]
    return divisor
