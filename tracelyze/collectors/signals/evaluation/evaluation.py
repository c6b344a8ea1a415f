"""Evaluation passes: consecutive outermost calls that no backward ever ran through.

Whether such a pass is a validation, a teacher, a rollout or a generator at rest is for the analyzer to decide; what is
recorded is what happened: how many calls, in which mode, on whose batches, with which losses computed.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import deque
from types import FrameType
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call, EvaluatedLosses
from tracelyze.collectors.program.consumed.without_loader import WithoutLoader
from tracelyze.collectors.program.lines import named_calls
from tracelyze.collectors.program.models import Model, first_tensor
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.evaluation import passes
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute

MAX_GIVEN_UP = 1000  # losses that are no number, in events
SANITY_CHECK = (0, "sanity check")  # as a callback announces it
MAX_LOSSES = 16  # of one backward that are looked at
NOTED_LINES = 8  # calls of a model as in training, after each evaluation, whose lines are noted
RECHECKS = 8  # a model that no optimizer holds is checked again this often: its optimizer may step later


class Evaluation(Signal):
    name = "evaluation"
    needs = UNSEEN
    pausable = ("settled",)
    copied_columns = ()
    about = "Evaluation passes: calls whose output no backward reached, with mode, losses and batches."
    cost = "3 us a call"
    columns = columns_of(
        "evals",
        "time_start time_end after_step model trained optimizer forwards samples grad_mode model_in_train "
        "modules_sensitive modules_in_train modules dropouts repeats statistics same_input losses loss loss_is_whole "
        "loader site compared purpose",
    )

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._passes: dict[int | None, list[Call]] = {}  # by training, where there are several
        self._late: deque[tuple[dict[str, Any], Readback]] = deque()
        self._held: dict[int, int | None] = {}
        self._rechecks: dict[int, int] = {}
        self._noted: dict[int, int] = {}  # calls as in training whose lines were noted, by model
        self._given_up_losses = 0
        self._unread: deque[tuple[dict[str, Any], Readback]] = deque()  # losses of such calls, on a device
        self._declared: tuple[int, str] | None = None
        self._declarations = 0
        self._training_losses: list[tuple[int, float]] = []  # with the backwards of the process before them
        self._is_whole: bool | None = None
        self._input: weakref.ref[Any] | None = None  # of the latest call in which values were dropped
        self._input_key: tuple[Any, ...] = ()
        self._without_loader = WithoutLoader(self.torch, self.program.sites, self.progress)

    def evaluation_begins(self, purpose: str, with_latest: bool = False) -> None:
        """Calls belong to one pass until its end, whatever loaders feed it. `with_latest`: the latest call, too."""
        self.context.fast_path.catch_up()
        self._declarations += 1
        self._declared = (self._declarations, purpose)
        latest = self.program.calls.latest
        if with_latest and latest is not None:
            latest.declared = self._declared

    def evaluation_ends(self) -> None:
        self._declared = None

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        call.declared = self._declared
        call.holder = self.program.trainings.holder(call.model.number)
        if call.replayed and call.mode != GRAD:
            return  # What is asked here was asked of the call that it is like (program/consumed/asides.py).
        if call.mode != GRAD or not call.in_train:
            if call.holder is None and self.progress.steps and call.model.number not in self._held:
                self._holder(call.model)  # The model may be gone before the pass is over: its program's last one.
            evaluated = call.evaluated = EvaluatedLosses()
            evaluated.site = self.program.sites.here("forward")
            evaluated.path = self.program.sites.path() if call.batch is None else ()
            given = first_tensor(self.torch, args, kwargs) if call.batch is None or call.dropouts else None
            if call.dropouts:
                self._note_input(call, evaluated, given)
            if call.batch is None:
                self._ask(call, evaluated, args[0] if given is None and args else given)
            if not self.progress.steps and call.declared is None and _in_sanity_check():
                call.declared = SANITY_CHECK
        elif not call.replayed:
            noted = self._noted.get(call.model.number, 0)
            if noted < NOTED_LINES:
                self._noted[call.model.number] = noted + 1
                self.program.sites.here("training-call")
        if call.mode == GRAD and call.in_train and call.batch is None and self._without_loader.unlike_training(call):
            self._may_measure(call, args, kwargs)

    def _may_measure(self, call: Call, args: Any, kwargs: Any) -> None:
        """A call is made as in training, and is unlike those that train: where, of what, and is its answer compared?"""
        if not call.replayed:
            evaluated = call.evaluated = EvaluatedLosses()
            evaluated.site, evaluated.path = self.program.sites.here("forward"), self.program.sites.path()
            given = first_tensor(self.torch, args, kwargs)
            self._ask(call, evaluated, args[0] if given is None and args else given)

    def _ask(self, call: Call, evaluated: EvaluatedLosses, given: Any) -> None:
        """What is asked of a call that no loader feeds."""
        evaluated.same_input = self._without_loader.was_given(call, given)
        evaluated.compared = self._without_loader.line_that_compares(evaluated.path)

    def _note_input(self, call: Call, evaluated: EvaluatedLosses, given: Any) -> None:
        """Values are dropped: was the model given this just before, for another sample of what it answers?"""
        if not is_plain(self.torch, given):
            self._input = None
            return
        before = None if self._input is None else self._input()
        version = None if given.is_inference() else given._version  # of what changes in place: torch counts how often
        key = (call.model.number, call.step, evaluated.site, version)
        evaluated.repeats = before is given and self._input_key == key
        self._input, self._input_key = weakref.ref(given), key

    def loss(self, value: Any) -> None:
        """A loss function returned: it belongs to the latest call."""
        call = self.program.calls.latest
        if call is None or value.is_meta or not may_compute(self.torch):
            return
        value = value.detach()
        if call.mode == GRAD and call.in_train:
            call.given_loss = value.item() if value.is_cpu else value
            if value.is_cpu and len(self._training_losses) < MAX_LOSSES:
                self._training_losses.append((self.progress.backwards, call.given_loss))
            return
        evaluated = call.evaluated = call.evaluated or EvaluatedLosses()
        if evaluated.unread or self.context.fast_path.on:  # else it belongs to a call that was skipped
            return
        evaluated.count += 1
        evaluated.is_whole = self._is_whole
        if value.device.type == "cpu":
            evaluated.total += value.item()
        else:
            evaluated.on_device = value if evaluated.on_device is None else evaluated.on_device + value

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        """Is what one loss function returned, but for a whole divisor, what the script optimizes?"""
        losses, backward = self._training_losses, self.program.backwards.running
        if losses and backward is not None:
            self._training_losses = []
            if type(backward.value) is float and backward.value:
                own = [value for before, value in losses if before == backward.number - 1]
                if own:
                    self._is_whole = any(_is_multiple(value, backward.value) for value in own)

    def first_step(self, tracked: Any) -> None:
        self._is_whole = None  # of another training

    def settled(self, call: Call, trained: bool) -> None:
        training = self._training(call) if self.program.trainings.several else None
        calls = self._passes.get(training)
        if calls and (trained or not passes.are_one(calls[-1], call)):
            self._close(training)
        if not trained:
            self._passes.setdefault(training, []).append(call)
            if call.mode == GRAD and call.in_train:
                self._given_up(call)
        elif call.evaluated is not None and call.evaluated.site is not None:
            place = self.program.sites.code(call.evaluated.site)
            if place is not None:  # It trained all the same, in eval mode or checkpointed.
                self.program.sites.at("training-call", *place)
        call.given_loss = None
        if self._late or self._unread:
            self._release()
        elif not self._passes:
            self.pause()  # until a call is settled that did not train

    def _given_up(self, call: Call) -> None:
        """The model was called to train and no backward followed: was that because the loss was no number?"""
        self.context.losses.watch()
        if call.given_loss is None or self._given_up_losses >= MAX_GIVEN_UP:
            return
        row = {"time": self.context.now(), "step": call.step, "kind": "loss-given-up", "name": "NaN"}

        def fill(late: dict[str, Any], values: list[float]) -> None:
            if not math.isfinite(values[0]):
                self._given_up_losses += 1
                self.program.sites.wanted.add("singular")  # A division may have made it so.
                name = "NaN" if math.isnan(values[0]) else "Inf"
                self.context.emit("events", late | {"name": name, "value": values[0]})

        if isinstance(call.given_loss, float):
            fill(row, [call.given_loss])
        elif call.given_loss.is_cuda and not self.torch.cuda.is_current_stream_capturing():
            self._unread.append((row, Readback(self.torch, [call.given_loss], fill)))

    def _training(self, call: Call) -> int | None:
        """An optimizer of the training whose model was called, where there are several; None if it is nobody's."""
        training = self.program.trainings.of_models(frozenset((call.model.number,)))
        return None if training is None else min(training.optimizers)

    def finished(self) -> None:
        for training in list(self._passes):
            self._close(training)
        self._release(wait=True)

    def _close(self, training: int | None) -> None:
        self._noted.clear()
        calls = self._passes.pop(training, None)  # an OS signal handler may evaluate too, and be here first
        if calls:
            self._over(calls)

    def passed_over(self, calls: list[Call]) -> None:
        for training in list(self._passes):
            self._close(training)
        self._over(calls)

    def _over(self, calls: list[Call]) -> None:
        """Emit the rows of consecutive calls."""
        for one in passes.parted(calls):
            self._emit_pass(one)

    def _emit_pass(self, calls: list[Call]) -> None:
        """Emit the row of one pass."""
        models = {call.model.number: call.model for call in calls}
        row = passes.row_of(calls, {number: self._holder(model) for number, model in models.items()})
        if not row["purpose"] and not row["repeats"] and not (row["losses"] and row["trained"]):
            for call in calls:
                self.program.asides.know(call)
        late = passes.on_device(calls)
        if late:
            totals = [self.torch.stack([one.double() for one in values]).sum() for values in late.values()]
            names = list(late)
            self._late.append((row, Readback(self.torch, totals, lambda r, v: passes.add_late(r, names, v))))
        else:
            self._emit(row)
        self._note_function(row["site"])

    def _emit(self, row: dict[str, Any]) -> None:
        if not all(math.isfinite(row[name] or 0.0) for name in ("loss", "read_sum")):
            self.program.sites.wanted.add("singular")  # A division may have made it so.
        self.context.emit("evals", row)

    def _note_function(self, site: int | None) -> None:
        """The first statement of the function that evaluates, beside which a missing eval() or no_grad() belongs."""
        place = None if site is None else self.program.sites.code(site)
        if place is not None and "backward" not in place[0].co_names:
            code, line = place[0], named_calls.first_statement(place[0])
            if line is not None:
                self.program.sites.at("evaluation", code, line)

    def _release(self, wait: bool = False) -> None:
        while self._unread and (wait or self._unread[0][1].arrived()):
            row, readback = self._unread.popleft()
            readback.fill(row)
        while self._late and (wait or self._late[0][1].arrived()):
            row, readback = self._late.popleft()
            readback.fill(row)
            self._emit(row)

    def _holder(self, model: Model) -> int | None:
        """An optimizer that has stepped and holds one of the model's parameters; None if there is none."""
        known = self.program.trainings.holder(model.number)
        known = self._held.get(model.number) if known is None else known
        checks, module = self._rechecks.get(model.number, 0), model.module()
        if known is not None or checks >= RECHECKS or module is None:
            return known
        self._rechecks[model.number] = checks + 1
        holders = {id(p): tracked.index for tracked in self.program.optimizers.tracked() for p in tracked.parameters()}
        found = self._held[model.number] = next((holders[id(p)] for p in module.parameters() if id(p) in holders), None)
        return found


def _is_multiple(value: float, of: float) -> bool:
    """Whether one is the other, or was divided by a whole number: accumulation."""
    ratio = value / of
    return ratio > 0.5 and math.isclose(ratio, round(ratio), rel_tol=1e-4)


def _in_sanity_check() -> bool:
    """Whether Lightning tries a few batches of the validation before it trains."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_run_sanity_check" and "lightning" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
