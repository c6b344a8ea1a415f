"""How far the policy that is trained is from the one that acted: the ratio of their probabilities, as the loss weighs
it, at the first backward after the policy acted. Nothing was updated since, so that it should be 1 for all actions.

A policy acts where its model, or a copy of it, is called by itself: no backward runs through what comes of it. That the
loss is of what came of it is seen in the inputs: those of the model in training begin with some that were acted upon,
and were not trained on before.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterable
from typing import Any

from tracelyze.collectors.cadence.decimation import PER_E_FOLD
from tracelyze.collectors.internals.private_names import SAVED, UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.consumed import held_ratios
from tracelyze.collectors.program.models import first_tensor
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.loss.given_rows import GivenRows, Numbers, projected
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors import saved_values
from tracelyze.collectors.tensors.policies import ratios
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import every_nth, is_plain, may_compute, unseen

SEARCHED = 20  # backwards of an optimizer after which a loss that had no such ratio will not have any
MOST_SEARCHED = 400  # of a run that makes many optimizers
MOST_READS = 400  # of the script's variables, where the loss itself holds no ratio
FIRST_LOOKS, MOST_LOOKS = 12, 200  # at rollouts: one after the other at first, then ever more rarely
MOST_CALLS = 8  # of one model, between two backwards
NEAREST = 4  # parameters behind a ratio, of which one belongs to a model
TENSORS, ELEMENTS = 8, 64  # of a copy, that tell whether it has changed


class Acting(Signal):
    name = "acting"
    needs = (*UNSEEN, SAVED)
    columns = ()
    about = (
        "How far the trained policy is from the one that acted, before the first update on what came of it (events)."
    )
    cost = "0.5 ms per look, 50 us a call in the first rollouts; in other trainings 50 us at the first backwards"
    sampled = True
    every = 50
    inactive = ("forward", "after_backward")
    pausable = ("forward", "before_backward", "after_backward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        saved_values.watch(self.torch)
        self._pending = PendingRows(context.emit, "events")
        self._rows = GivenRows(self.torch)
        self._calls: dict[int, list[Call]] = {}  # by model, since the policy's latest backward
        self._searched = 0
        self._left = MOST_SEARCHED
        self._reads = MOST_READS
        self._looks = 0
        self._looks_before = 0  # at policies of earlier trainings
        self._next = 0  # the step from which on there is to be another look
        self._look: tuple[ratios.Ratio, list[Any]] | None = None  # at the backward that runs
        self._policies: set[int] = set()  # models that a ratio was seen of

    def first_step(self, tracked: Tracked) -> None:
        self._searched, self._looks_before, self._next = 0, self._looks, 0  # another training begins

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        calls = self._calls.setdefault(call.model.number, [])
        if self.progress.steps < self._next or call.replayed:
            return
        if len(calls) >= MOST_CALLS:
            if call.mode != GRAD:
                return
            self._rows.drop(calls.pop())  # The latest one with autograd is that in training.
        calls.append(call)
        given = first_tensor(self.torch, args, kwargs)
        if is_plain(self.torch, given) and may_compute(self.torch, given.is_cuda):
            with unseen(self.torch), self.torch.no_grad():
                self._rows.given(call, given)

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        self._look = None
        if not roots or self.progress.steps < self._next or not (self._may_have_acted() or self._searches()):
            return
        node = roots[0].grad_fn
        if node is None or not may_compute(self.torch, roots[0].is_cuda):
            return
        with unseen(self.torch):
            found = ratios.ratio(self.torch, node)
            if found is None and self._reads > 0:
                self._reads -= 1
                found = held_ratios.ratio(self.torch, node, sys._getframe(1))
        if not self.active:
            self._searched += 1
            self._left -= 1
        if found is not None:
            self.activate()
            self._look = found, []
            if self._may_have_acted():
                self.meter.decide(True)
                with unseen(self.torch):
                    self._look = found, ratios.facts(self.torch, found)

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        look, self._look = self._look, None
        running = self.program.backwards.running
        reached = () if running is None else running.calls
        if look is not None and (look[1] or self._policies.isdisjoint([call.model.number for call in reached])):
            self._looked(*look, reached)
            self.meter.sampling = False
        policy = [call for call in reached if call.model.number in self._policies]
        if policy:
            self._rows.trained(policy)
            self._forget()

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        self._pending.release()
        steps = self.progress.steps
        done = self._looks >= MOST_LOOKS if self.active else not self._searches()
        if not self._pending.waiting and (done or steps < self._next):
            self._forget()
            self.pause(math.inf if done else self._next)

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _searches(self) -> bool:
        return not self.active and self._searched < SEARCHED and self._left > 0

    def _may_have_acted(self) -> bool:
        """Whether there were more calls since the policy's latest backward than one of each model, in training."""
        return any(len(calls) > 1 or any(one.mode != GRAD for one in calls) for calls in self._calls.values())

    def _forget(self) -> None:
        self._calls.clear()
        self._rows.forget()

    def _looked(self, found: ratios.Ratio, facts: list[Any], reached: Iterable[Call]) -> None:
        """Write down what a look found, if the policy or a copy of it has acted since its latest backward."""
        near = itertools.islice(ratios.nearest_parameters(found), NEAREST)
        parameter, policy = next(
            ((one, call) for one in near for call in reached if _holds(_module(call), one)), (None, None)
        )
        if policy is None:
            return
        self._policies.add(policy.model.number)
        done = set(map(id, reached))
        others = [one for one in itertools.chain(*self._calls.values()) if id(one) not in done]
        own = [one for one in others if _holds(_module(one), parameter)]
        copies = [one for one in others if _is_copy(one, policy) and not self._rows.gives_no_samples(one, policy)]
        if len(own) < len(copies):  # a call or two that value what follows
            own = []
        acted = own or copies
        if not facts or not acted:
            return
        of_both = [] if own else [self._state(_module(one)) for one in (acted[0], policy)]
        states = [one for one in of_both if one is not None]
        if len(states) < len(of_both):
            return
        self._looks += 1
        known = {
            "model": policy.model.number,
            "own": bool(own),
            "detached": found.detached,
            "adapters": not own and not _is_alike(_module(acted[0]), _module(policy)),
            "dropouts": [max(one.dropouts for one in acted), policy.dropouts],
        }
        row = {"time": self.context.now(), "step": self.progress.steps, "kind": "policy-acted", "name": "", "text": ""}

        def fill(late: dict[str, Any], read: list[float]) -> None:
            seen = dict(zip(("apart", "both_signs", "largest"), read, strict=True))
            late["text"] = json.dumps(known | seen | rows.facts())

        rows = self._rows.compared(policy, acted, states)
        self._pending.put([row], rows.after(Readback(self.torch, facts, fill)))
        if self._looks - self._looks_before >= FIRST_LOOKS:
            steps = self.progress.steps
            self._next = steps + max(self.meter.stride, steps * FIRST_LOOKS // PER_E_FOLD)

    def _state(self, module: Any) -> Numbers | None:
        """A number that changes with the weights of a model; None where they cannot be read."""
        torch = self.torch
        plain = [one for one in module.parameters() if is_plain(torch, one) and one.numel()]
        chosen = plain[:: max(1, len(plain) // TENSORS)][:TENSORS]
        if not chosen or len({one.device for one in chosen}) > 1 or any(one.is_complex() for one in chosen):
            return None
        with unseen(torch), torch.no_grad():
            rows = [projected(torch, every_nth(one, ELEMENTS)[None]) for one in chosen]
            return Numbers(torch, torch.stack(rows).sum(0))


def _is_copy(call: Call, policy: Call) -> bool:
    """Whether another model has the shapes of the policy's, or those of what stands still in it beside its adapters: a
    server that samples holds the weights without these, which are merged into them."""
    module, own = _module(call), _module(policy)
    if module is None or own is None or module is own:
        return False
    still = [one.shape for one in own.parameters() if not one.requires_grad]
    return _is_alike(module, own) or [one.shape for one in module.parameters()] == still != []


def _is_alike(module: Any, own: Any) -> bool:
    """Whether two modules have weights, and of the same shapes."""
    shapes = [one.shape for one in module.parameters()]
    return bool(shapes) and shapes == [one.shape for one in own.parameters()]


def _module(call: Call) -> Any:
    return call.model.module()


def _holds(module: Any, parameter: Any) -> bool:
    return module is not None and any(one is parameter for one in module.parameters())
