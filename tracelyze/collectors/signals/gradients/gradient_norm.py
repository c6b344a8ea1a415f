"""The global gradient norm, and how many gradients are zero or not finite.

The most expensive signal: a kernel per tensor. It samples the first steps of a run all, then as often as the budget
allows, and at once when the loss is out of the ordinary. Steps without a backward are sampled in pairs, a few times:
the same norm twice shows that the second one used the gradients of the first again.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

from tracelyze.collectors.internals.private_names import NORMS, UNSEEN
from tracelyze.collectors.program.manual_updates import ManualOptimizer
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.gradients.singular_operations import suspects
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.storage.pending import PendingValues
from tracelyze.collectors.tensors import shards
from tracelyze.collectors.tensors.readback import Known, Readback
from tracelyze.collectors.tensors.safe_computing import has_memory, may_compute, norms_of

MAX_NAMED = 5  # events that name a parameter with a non-finite gradient
PAIRS = 20  # of steps without a backward: twice as many as step-without-backward asks for, half of which must be alike
AT_STEP, FROM_CLIP, OF_SHARDS, BEFORE_VALUES = 1, 2, 3, 4


class Clip(NamedTuple):
    """The norm of the gradients before a clip, as the clip returned it."""

    training: Any  # where there are several
    norm: Any
    source: int
    backwards: int  # of the process
    first: int  # id of the first parameter that was clipped
    early: bool  # No backward came since the latest step: a norm of 0 is that of gradients that are yet to come.


class GradientNorm(Signal):
    name = "gradient_norm"
    needs = (*UNSEEN, NORMS)
    columns = ("steps.grad_norm", "steps.grad_norm_source", "steps.grads_zero", "steps.grads_nonfinite")
    about = "Global L2 norm of the gradients before clipping, and how many of them are zero or not finite."
    cost = "2 us per parameter tensor and sample"
    sampled = True
    first_steps = 100
    max_stride = 50
    pausable = ("before_backward", "before_step", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._clip_norms: list[Clip] = []
        self._clipped_values = -1  # backwards of the process when gradients were clipped by value
        self._measured: PendingValues | None = None
        self._named = 0
        self._pairs = 0  # of steps without a backward that were both measured
        self._paired: tuple[int, int] | None = None  # optimizer and backwards, if it was just measured at such a step
        # The graph of the backward before the step. It still holds the parameters: so it is given up as soon as the
        # optimizer, to which `_graph_of` is a weak reference, is gone.
        self._graph: Any = None
        self._graph_of: Any = lambda: None

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        self._graph = roots[0].grad_fn if roots and self._named < MAX_NAMED else None
        tracked = self.program.optimizers.latest if self._graph is not None else None
        if tracked is not None and isinstance(tracked.optimizer, ManualOptimizer):  # its end would not be noticed
            self._graph = None
        elif tracked is not None and self._graph_of() is not tracked.optimizer:
            self._graph_of = weakref.ref(tracked.optimizer, self._forget_graph)

    def _forget_graph(self, ref: Any) -> None:
        self._graph = None

    def clips_values(self, parameters: Any) -> None:
        """This clip tells no L2 norm of the gradients before it: it is taken now, if the step is sampled."""
        if self._clipped_values == self.progress.backwards or self._is_clipped():
            return
        self._clipped_values = self.progress.backwards
        tracked = self.program.optimizers.latest
        if self.meter.steps_until_due(0 if tracked is None else tracked.count) and not self.progress.alert:
            return
        self.resume()
        begin = perf_counter()
        given = [parameters] if isinstance(parameters, self.torch.Tensor) else parameters
        held = given if tracked is None or self.program.trainings.several else tracked.parameters()
        gradients = [shards.local(g) for p in held if (g := p.grad) is not None and g.layout is self.torch.strided]
        if gradients and may_compute(self.torch, gradients[0].is_cuda):
            with self.torch.no_grad():
                norm = norms_of(self.torch, gradients).square().sum().sqrt()
            source = OF_SHARDS if any(shards.is_sharded(one) for one in held) else BEFORE_VALUES
            self._note(norm, source)
        self.meter.spent(perf_counter() - begin)

    def clip(self, max_norm: Any, total_norm: Any) -> None:
        tensor = self.torch.Tensor
        if isinstance(total_norm, tensor) and self._clipped_values != self.progress.backwards:
            source = FROM_CLIP
            if type(total_norm) is not tensor:
                source = FROM_CLIP if shards.is_whole(total_norm) else OF_SHARDS
                total_norm = shards.local(total_norm)
            if not self.context.fast_path.on:
                self.resume()
            elif not self.fast_columns:
                self.fast_columns = ("grad_norm", "grad_norm_source")
                self.context.listeners_changed()
            self._note(total_norm.detach(), source)

    def _is_clipped(self) -> bool:
        """Whether the gradients that are being clipped were clipped before, since the latest backward."""
        first, backwards = self.program.trainings.clipped.first, self.progress.backwards
        return (first, backwards) in [(one.first, one.backwards) for one in self._clip_norms]

    def _note(self, norm: Any, source: int) -> None:
        if not has_memory(self.torch, norm):
            return
        clipped, progress = self.program.trainings.clipped, self.progress
        backwards = progress.backwards
        if self._clip_norms:
            if self._is_clipped():
                return
            self._clip_norms = [one for one in self._clip_norms if one.backwards == backwards]  # not of micro-batches
        early = backwards == progress.backwards_at_step
        self._clip_norms.append(Clip(clipped.training, norm, source, backwards, clipped.first, early))

    def before_step(self, tracked: Tracked) -> None:
        follows, self._paired = self._paired == (tracked.index, self.progress.backwards), None
        self._pairs += follows
        if not tracked.inside_backward and (self.due(tracked) or follows):
            self._measure(tracked)

    def fast_values(self, tracked: Tracked, time: float) -> tuple[Any, int | None]:
        """On a device the norm is a scalar there, which is read later."""
        clips = self._clip_norms
        if not clips:
            return None, None
        self._clip_norms = []
        if not clips[0].norm.is_cpu:
            if any(clip.early for clip in clips):  # before any gradient, if it is 0: that is not known
                return None, None
            norms = [clip.norm for clip in clips]
            return norms[0] if len(norms) == 1 else self.torch.stack(norms).square().sum().sqrt(), clips[0].source
        norm = total_norm([clip.norm.item() for clip in clips])
        if not norm and all(clip.early for clip in clips):
            return None, None
        return norm, clips[0].source

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if self._measured is not None and self.progress.backwards > self.progress.backwards_at_step:
            self._measure(tracked)  # a closure ran inside the step: what was measured before it is stale
        if self._measured is not None:
            self.context.defer(self._measured)
            if row.get("backwards") == 0 and self._pairs < PAIRS:
                self._paired = (tracked.index, self.progress.backwards)
        clips, self._clip_norms = self._clip_norms, []
        if clips and self.program.trainings.several:
            self._clip_norms = [clip for clip in clips if clip.training not in (tracked.training, None)]
            clips = [clip for clip in clips if clip.training in (tracked.training, None)]
        if clips and not row.get("skipped"):
            self.context.defer(Readback(self.torch, [clip.norm for clip in clips], _from_clips(clips)))
        elif self._clipped_values == self.progress.backwards and self._measured is not None:
            self.context.defer(Known(_without_norm))
        self._measured = self._graph = None
        if not self._clip_norms and self._paired is None:
            self.pause(self.progress.steps + self.steps_until_due())

    def _measure(self, tracked: Tracked) -> None:
        torch = self.torch
        parameters = tracked.parameters()
        if not may_compute(torch, tracked.on_cuda):
            return
        gradients = [g for p in parameters if (g := p.grad) is not None and g.layout is torch.strided]
        if not gradients or not has_memory(torch, shards.local(gradients[0])):
            return
        empty = 0
        if tracked.sharded:
            gradients = [shards.local(gradient) for gradient in gradients]
            empty = sum(not gradient.numel() for gradient in gradients)
        with torch.no_grad():
            norms = norms_of(torch, gradients)
            if norms.device.type == "cpu":
                self._measured = self._on_host(norms.tolist(), tracked, empty)
            else:
                finite = norms.isfinite()
                zero = (norms == 0).sum() - empty
                facts = [norms.square().sum().sqrt(), (~finite).sum(), zero, (~finite).int().argmax()]
                scale = getattr(tracked.optimizer, "grad_scale", None)
                if isinstance(scale, torch.Tensor):  # fused optimizers get their gradients still scaled
                    facts[0] = facts[0] / scale
                self._measured = Readback(torch, facts, lambda row, v: self._fill(row, tracked, v[0], v[1], v[2], v[3]))

    def _on_host(self, norms: list[float], tracked: Tracked, empty: int) -> Known:
        total = total_norm(norms)
        scale = getattr(tracked.optimizer, "grad_scale", None)
        if isinstance(scale, self.torch.Tensor):
            total /= float(scale.item())
        bad = [index for index, norm in enumerate(norms) if not math.isfinite(norm)]
        zero = sum(norm == 0 for norm in norms) - empty
        what = self._suspects(tracked, bad, all(math.isnan(norms[index]) for index in bad)) if bad else ""
        return Known(lambda row: self._fill(row, tracked, total, len(bad), zero, bad[0] if bad else 0, what))

    def _suspects(self, tracked: Tracked, bad: list[int], nan: bool) -> str:
        """The operations that can have made these gradients not finite, or all NaN, as a list."""
        if self._graph is None or self._named >= MAX_NAMED:
            return ""
        held = [id(p) for p in tracked.parameters() if p.grad is not None and p.grad.layout is self.torch.strided]
        broken = {held[index] for index in bad if index < len(held)}
        self.program.sites.wanted.add("singular")
        return ", ".join(suspects(self._graph, set(held) - broken, broken, nan))

    def _fill(
        self,
        row: dict[str, Any],
        tracked: Tracked,
        total: float,
        nonfinite: float,
        zero: float,
        first: float,
        what: str = "",
    ) -> None:
        source = OF_SHARDS if tracked.sharded else AT_STEP
        row.update(grad_norm=total, grad_norm_source=source, grads_nonfinite=int(nonfinite), grads_zero=int(zero))
        if nonfinite and self._named < MAX_NAMED and not row.get("skipped"):
            self._named += 1
            held = [p for p in tracked.parameters() if p.grad is not None]
            name = self.program.calls.parameter_name(held[int(first)]) if int(first) < len(held) else None
            self.context.record_event(
                "nonfinite-gradient", name or f"tensor {int(first)} of the optimizer", what, value=nonfinite
            )


def _from_clips(clips: list[Clip]) -> Callable[[dict[str, Any], list[float]], None]:
    """Clips of several parts of a model add up in squares. The norm of a clip before the backward tells nothing."""
    source, early = clips[0].source, all(clip.early for clip in clips)

    def fill(row: dict[str, Any], norms: list[float]) -> None:
        norm = total_norm(norms)
        if norm or not early:
            row.update(grad_norm=norm, grad_norm_source=source)

    return fill


def _without_norm(row: dict[str, Any]) -> None:
    """The norm was measured after gradients had been clipped by value."""
    row["grad_norm"] = row["grad_norm_source"] = None


def total_norm(norms: list[float]) -> float:
    """L2 norm of all elements, given those of their parts; NaN if one of them is, unlike with `math.hypot`."""
    return math.sqrt(sum([norm * norm for norm in norms]))
