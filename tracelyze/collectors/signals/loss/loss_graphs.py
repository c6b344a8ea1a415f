"""The graph behind the loss, at some backwards: weights of a policy's loss, its entropy and its advantages, masks that
come after a softmax, and the dimensions that the softmaxes of attention and of a written-out loss run over."""

from __future__ import annotations

import json
import math
import sys
from types import FrameType
from typing import Any

from tracelyze.collectors.cadence.search import Search
from tracelyze.collectors.internals import private_names
from tracelyze.collectors.internals.private_names import ANY_AUTOCAST, SAVED, UNSEEN
from tracelyze.collectors.program.call import Call
from tracelyze.collectors.program.consumed.held_rewards import HeldRewards
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.loss.trained_rows import TrainedRows
from tracelyze.collectors.signals.precision.autocast import dtype_code
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors import flat_operations, product_types, saved_values
from tracelyze.collectors.tensors.attention import masked_attention, seen_ids, softmax_dimension
from tracelyze.collectors.tensors.policies import choices, completions, deviations, terms, weights
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen
from tracelyze.collectors.tensors.written_out import picked_classes

WHOLE_GRAPHS = 4  # that are walked from end to end; the way to a policy's weights is short
TRIED = 20  # samples after which a loss that had no such weights will hardly have any
AGAIN = 2  # times the steps so far, when it is looked at again: a policy may begin with a supervised training
PER_STEP, MAX_SAMPLES = 4, 2000


class LossGraphs(Signal):
    name = "loss_graphs"
    needs = (*UNSEEN, SAVED)
    columns = columns_of(
        "loss_graphs",
        "step site",
        *weights.COLUMNS,
        *masked_attention.COLUMNS,
        *softmax_dimension.COLUMNS,
        *picked_classes.COLUMNS,
        *product_types.COLUMNS,
        *seen_ids.COLUMNS,
    )
    about = (
        "Operations behind the loss: the weights of a policy's loss, its entropy, that of the odds it chooses by, "
        "whether its advantages are part of the graph, variables that hold rewards (events), masks of attention that "
        "come after the softmax or hide all ids but one."
    )
    cost = "100 us per sample, 300 us more of a policy's loss (1 to 20 ms at the first few)"
    sampled = True
    every = 5
    first_steps = 20
    pausable = ("forward", "before_backward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        saved_values.watch(self.torch)
        self._pending = PendingRows(context.emit, "loss_graphs")
        self._pending_terms = PendingRows(context.emit, "events")
        self._rows = TrainedRows(self.torch, context.emit)
        self._weighed = False  # whether a loss of this step was a policy's
        self._search = Search(self.meter, AGAIN)
        self._left = PER_STEP  # backwards of this step that are looked at
        self._samples = 0
        self._casting = False  # whether a model was called under autocast
        self._any_autocast = private_names.find(self.torch, ANY_AUTOCAST)  # None in a torch without it
        self._is_flat = False  # whether that was recorded of a loss
        self._rewards = HeldRewards(self.torch)
        self._policy = 0  # samples that found weights of a policy

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if self._left and self._samples < TRIED:
            self._casting = self._casting or bool(call.autocast or (self._any_autocast and dtype_code(self.torch)))
            self._rows.called(call, args, kwargs)

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if not self._left or self._samples >= MAX_SAMPLES or not roots:
            return
        self._left -= 1
        root = roots[0]
        node = root.grad_fn
        if node is None or not may_compute(self.torch, root.is_cuda):
            return
        self._samples += 1
        with unseen(self.torch), self.torch.no_grad():
            values = weights.columns(self.torch, node)
            is_policy = self._terms(node)
            chosen = self._choices(node) or self._deviations(node)
            if is_policy and values and not chosen:
                held = json.dumps(self._held(sys._getframe()))
                self.context.emit("events", self._event("policy-rewards") | {"text": held})
            self._policy += chosen or is_policy or bool(values)
            self._weighed |= is_policy
            if self._samples <= WHOLE_GRAPHS:
                values |= masked_attention.columns(self.torch, node, root.device)
                values |= softmax_dimension.columns(self.torch, node, root.device)
                values |= seen_ids.columns(self.torch, node, root.device)
                values |= picked_classes.columns(self.torch, node, root.device)
                values |= product_types.columns(self.torch, node, root.device) if self._casting else {}
                flat = [] if self._is_flat else flat_operations.in_every_way(node)
                if flat:
                    self._is_flat = True
                    self.context.emit("events", self._event("flat-loss") | {"name": ", ".join(flat)})
        if values and len({value.device for value in values.values()}) == 1:
            row = {"step": self.progress.steps, "site": self.program.sites.here("backward")}
            self._pending.put([row], Readback.of_columns(self.torch, values))

    def _terms(self, node: Any) -> bool:
        """Record what a policy's loss does beside weighing log-probabilities; whether it is one."""
        found = terms.terms(self.torch, node)
        if not found.weights or len({one.device for one in (*found.weights, *(p[0] for p in found.products))}) > 1:
            return False
        row = self._event("policy-loss")
        values = [terms.both_signs(self.torch, found.weights[0]), terms.all_ones(self.torch, found)]
        written = completions.facts(self.torch, node)
        written = [one for one in written if one.device == values[0].device]
        values += written
        values += [one for product in found.products for one in terms.entropy(self.torch, *product)]

        def fill(late: dict[str, Any], read: list[float]) -> None:
            facts: dict[str, Any] = {"undetached": found.undetached, "both_signs": bool(read[0])}
            if found.ratios:
                facts["ratio_one"] = bool(read[1])
            facts |= dict(zip(completions.COLUMNS, read[2 : 2 + len(written)], strict=False))
            for is_one, entropy, most, punished in zip(*[iter(read[2 + len(written) :])] * 4, strict=True):
                if is_one and "entropy" not in facts:
                    facts |= {"entropy": entropy, "most": most, "punished": punished}
            late["text"] = json.dumps(facts)

        self._pending_terms.put([row], Readback(self.torch, values, fill))
        return True

    def _choices(self, node: Any) -> bool:
        """Record how the odds of what a policy's loss weighs are spread; whether it weighs any choices."""
        found = choices.choices(self.torch, node)
        values = [] if found is None else choices.facts(self.torch, found)
        if not values:
            return False
        held = self._held(sys._getframe(1))

        def fill(late: dict[str, Any], read: list[float]) -> None:
            entropy, most, both, sign = read
            late["text"] = json.dumps(
                {"entropy": entropy, "most": most, "both_signs": bool(both), "sign": sign, **held}
            )

        self._pending_terms.put([self._event("policy-choices")], Readback(self.torch, values, fill))
        return True

    def _deviations(self, node: Any) -> bool:
        """Record how widely a policy draws continuous actions; whether the loss weighs any."""
        found = deviations.deviation(self.torch, node)
        if found is None:
            return False
        held = self._held(sys._getframe(1))

        def fill(late: dict[str, Any], read: list[float]) -> None:
            late["text"] = json.dumps({"deviation": read[0], "both_signs": bool(read[1]), **held})

        values = deviations.facts(self.torch, *found)
        self._pending_terms.put([self._event("policy-deviation")], Readback(self.torch, values, fill))
        return True

    def _held(self, frame: FrameType) -> dict[str, Any]:
        rewards = self._rewards.read(frame)
        return {"rewards": rewards, "weighed": self._rewards.weighed}

    def _event(self, kind: str) -> dict[str, Any]:
        return {"time": self.context.now(), "step": self.progress.steps, "kind": kind, "name": "", "text": ""}

    def first_step(self, tracked: Tracked) -> None:
        """An optimizer begins: what it minimises need not be what the one before it did."""
        if self.progress.steps > 1 and self._samples < MAX_SAMPLES and not self._policy:
            self._search.begin(self.progress.steps)
            self.resume()

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if self._weighed:
            self._rows.stepped(self._event("policy-rows"))
            self._weighed = False
        else:
            self._rows.forget()
        for pending in self._all_pending():
            pending.release()
        done = self._samples >= MAX_SAMPLES
        expected = bool(self._policy) or (self._samples < TRIED and not self._search.begun)
        self._left = PER_STEP if not done and self._search.due(self.progress.steps, expected) else 0
        if not self._left and not any(pending.waiting for pending in self._all_pending()):
            self.pause(math.inf if done else self._search.until)

    def finished(self) -> None:
        for pending in self._all_pending():
            pending.release(wait=True)

    def _all_pending(self) -> tuple[PendingRows, ...]:
        return self._pending, self._pending_terms, self._rows.pending
