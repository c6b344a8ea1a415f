"""Calls without autograd that a step makes beside those that train: of a target network, a teacher, a policy that acts.

A loop may have settled all the same: such a call is like an earlier one if the same line gives the same model as many
samples, and did within the last few steps. How often a step makes such calls may vary, as where a policy acts at
random now and then.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.call import GRAD, INFERENCE, NO_GRAD, Call
from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.consumed.batches_in_hand import BatchesInHand
from tracelyze.collectors.program.models import Model
from tracelyze.collectors.program.progress import Progress

MAX_KINDS = 16  # the latest ones
RARE = 5  # steps between two calls: such a call is part of no step, but of an evaluation
Kind = tuple[Any, ...]  # what calls have in common that are alike


class Asides:
    """What such calls were like when they were dispatched last, and new ones that are like them."""

    def __init__(self, torch: Any, progress: Progress, sites: Sites, batches: BatchesInHand) -> None:
        self._torch, self._progress, self._sites, self._batches = torch, progress, sites, batches
        self._known: dict[Kind, Call] = {}
        self._models: dict[int, Model] = {}  # by the identity of the module, which may be gone

    def know(self, call: Call) -> None:
        """Calls like this one may be skipped: what is recorded of them is known."""
        evaluated = call.evaluated
        if (
            call.replayed
            or call.mode == GRAD
            or evaluated is None
            or (call.batch is not None and self._batches.any_ahead)
        ):
            return
        place = evaluated.site if call.batch is not None else evaluated.path
        kind = call.model.number, call.batch_size, call.in_train, call.mode, call.loader, place
        self._known.pop(kind, None)
        self._known[kind] = call
        self._models[id(call.model.module())] = call.model
        if len(self._known) > MAX_KINDS:
            del self._known[next(iter(self._known))]
        if len(self._models) > MAX_KINDS:  # A program may make a model anew for each evaluation.
            self._models = {id(one.model.module()): one.model for one in self._known.values()}

    def may_be(self, module: Any) -> bool:
        """Whether calls of this module are known."""
        return id(module) in self._models

    def like(self, module: Any, given: Any, now: float) -> Call | None:
        """A call of this module with this tensor that has returned, as the one before that it is like; None if it is
        like none."""
        torch, progress, model = self._torch, self._progress, self._models.get(id(module))
        if model is None or model.module() is not module:
            return None
        mode = GRAD if torch.is_grad_enabled() else INFERENCE if torch.is_inference_mode_enabled() else NO_GRAD
        with_loader = progress.loader is not None
        if mode == GRAD or (with_loader and self._batches.any_ahead):
            return None
        size, in_train = int(given.shape[0]) if given.dim() else 1, model.in_train(module)
        batch = self._batches.used_by_skipped() if with_loader else None
        place = self._sites.path() if batch is None else self._sites.here("forward")
        before = self._known.get((model.number, size, in_train, mode, progress.loader, place))
        if before is None or progress.steps - max(before.step, model.skipped.get(size, 0)) >= RARE:
            return None
        call = Call(model, now - (before.end - before.start), now, progress.steps, mode)
        call.batch, call.batch_size, call.in_train, call.loader = batch, size, in_train, progress.loader
        call.holder, call.dropouts, call.statistics = before.holder, before.dropouts, before.statistics
        call.sensitive, call.replayed = before.sensitive, True
        call.evaluated = before.evaluated.again() if before.evaluated is not None else None
        call.number = progress.forwards + 1
        model.skipped[size] = progress.steps
        return call
