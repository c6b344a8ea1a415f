"""The global gradient norm, and how many gradients are zero or not finite.

The dearest signal of all: a kernel per tensor. It measures its own cost and takes every n-th step so as to stay within
BUDGET of the step time, every step while the run is young, and at once when the loss is out of the ordinary.
"""

from __future__ import annotations

import math
import time
from typing import Any

from tracelyze.collectors.optimizers import Tracked
from tracelyze.collectors.readback import Known, Later, Readback
from tracelyze.collectors.signals.signal import Signal

BUDGET = 0.01  # share of the step time
FIRST_STEPS = 20
MAX_STRIDE = 50
MAX_NAMED = 5  # events that name a parameter with a non-finite gradient
AT_STEP, FROM_CLIP = 1, 2


class GradientNorm(Signal):
    name = "gradient_norm"
    columns = ("steps.grad_norm", "steps.grad_norm_source", "steps.grads_zero", "steps.grads_nonfinite")

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self._clip_norms: list[Any] = []
        self._backwards_at_step = 0
        self._measured: Later | None = None
        self._cost = 0.0
        self._step_time = 0.0
        self._ended: dict[int, float] = {}
        self._named = 0

    def clip(self, max_norm: Any, total_norm: Any) -> None:
        if isinstance(total_norm, self.torch.Tensor):
            self._clip_norms.append(total_norm.detach())

    def before_step(self, tracked: Tracked) -> None:
        self._backwards_at_step = self.recorder.backwards
        if tracked.count % self.stride(tracked) == 0 or self.recorder.alert:
            self._measure(tracked)

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        self._learn_step_time(tracked, row["time"])
        if self._measured is not None and self.recorder.backwards > self._backwards_at_step:
            self._measure(tracked)  # a closure ran inside the step: what was measured before it is stale
        if self._measured is not None:
            self.recorder.later(self._measured)
        if self._clip_norms and not row.get("skipped"):
            self.recorder.later(Readback(self.torch, self._clip_norms, _from_clip))
        self._measured = None
        self._clip_norms = []

    def stride(self, tracked: Tracked) -> int:
        """Every how many steps the norm is taken."""
        if tracked.count < FIRST_STEPS or not self._step_time:
            return 1
        return min(MAX_STRIDE, max(1, math.ceil(self._cost / (BUDGET * self._step_time))))

    def _measure(self, tracked: Tracked) -> None:
        torch = self.torch
        start = time.perf_counter()
        parameters = tracked.parameters()
        if parameters and parameters[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return
        gradients = [g for p in parameters if (g := p.grad) is not None and g.layout is torch.strided]
        if not gradients:
            return
        with torch.no_grad():
            norms = torch.stack(torch._foreach_norm(gradients, 2, dtype=torch.float32))
            if norms.device.type == "cpu":
                self._measured = self._on_host(norms.tolist(), tracked)
            else:
                finite = norms.isfinite()
                facts = [norms.square().sum().sqrt(), (~finite).sum(), (norms == 0).sum(), (~finite).int().argmax()]
                scale = getattr(tracked.optimizer, "grad_scale", None)
                if isinstance(scale, torch.Tensor):  # fused optimizers get their gradients still scaled
                    facts[0] = facts[0] / scale
                self._measured = Readback(torch, facts, lambda row, values: self._fill(row, tracked, *values))
        cost = time.perf_counter() - start
        self._cost = cost if not self._cost else 0.9 * self._cost + 0.1 * cost

    def _on_host(self, norms: list[float], tracked: Tracked) -> Known:
        total = math.sqrt(sum(norm * norm for norm in norms))
        scale = getattr(tracked.optimizer, "grad_scale", None)
        if isinstance(scale, self.torch.Tensor):
            total /= float(scale.item())
        bad = [index for index, norm in enumerate(norms) if not math.isfinite(norm)]
        zero = sum(norm == 0 for norm in norms)
        return Known(lambda row: self._fill(row, tracked, total, len(bad), zero, bad[0] if bad else 0))

    def _fill(
        self, row: dict[str, Any], tracked: Tracked, total: float, nonfinite: float, zero: float, first: float
    ) -> None:
        row.update(grad_norm=total, grad_norm_source=AT_STEP, grads_nonfinite=int(nonfinite), grads_zero=int(zero))
        if nonfinite and self._named < MAX_NAMED and not row.get("skipped"):
            self._named += 1
            held = [p for p in tracked.parameters() if p.grad is not None]
            name = self.recorder.calls.parameter_name(held[int(first)]) if int(first) < len(held) else None
            self.recorder.event("nonfinite-gradient", name or f"tensor {int(first)} of the optimizer", value=nonfinite)

    def _learn_step_time(self, tracked: Tracked, now: float) -> None:
        before = self._ended.get(tracked.index)
        self._ended[tracked.index] = now
        if before is not None:
            seconds = now - before
            # A slow outlier (an evaluation, a checkpoint) must not buy budget: move up slowly, down at once.
            self._step_time = min(seconds, self._step_time * 1.05) if self._step_time else seconds


def _from_clip(row: dict[str, Any], norms: list[float]) -> None:
    """Clips of several parts of a model add up in squares."""
    row.update(grad_norm=math.sqrt(sum(norm * norm for norm in norms)), grad_norm_source=FROM_CLIP)
