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
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute

NO_GRAPH = 3  # schema.GRAD_MODE
MAX_GIVEN_UP = 1000  # losses that are no number, in events
SANITY_CHECK = (0, "sanity check")  # as a callback announces it
MAX_LOSSES = 16  # of one backward that are looked at
NOTED_LINES = 8  # calls of a model as in training, after each evaluation, whose lines are noted
RECHECKS = 8  # a model that no optimizer holds is checked again this often: its optimizer may step later
NOTHING_FOUND = EvaluatedLosses()  # of a call that was made as in training, and led to no backward


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
        if calls and (trained or not _same_pass(calls[-1], call)):
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
        for several in _by_line(calls):
            for one in _by_model(several):
                self._emit_pass(one)

    def _emit_pass(self, calls: list[Call]) -> None:
        """Emit the row of one pass."""
        per_model = {call.model.number: call for call in calls}
        main = max(per_model.values(), key=lambda call: (self._holder(call.model) is not None, call.sensitive.number))
        holders = [holder for call in per_model.values() if (holder := self._holder(call.model)) is not None]
        most_in_train: dict[int, int] = {}
        for call in calls:
            most_in_train[call.model.number] = max(most_in_train.get(call.model.number, 0), call.sensitive.in_train)
        found = [_found(call) for call in calls]
        losses, unread = sum(one.count for one in found), any(one.unread for one in found)
        read = [one for one in found if one.reads]
        worst = next((one for one in read if not math.isfinite(one.read_sum)), read[0] if read else None)
        site = next((one.site for one in found if one.site is not None), None)
        row = {
            "time_start": calls[0].start,
            "time_end": calls[-1].end,
            "after_step": calls[0].step,
            "model": main.model.number,
            "trained": bool(holders),
            "optimizer": self._holder(main.model) if main.holder is None else main.holder,
            "forwards": len(calls),
            "samples": sum(call.batch_size or 0 for call in calls),
            "grad_mode": _grad_mode(calls),
            "model_in_train": any(call.in_train for call in calls if call.model is main.model),
            "modules_sensitive": sum(call.sensitive.number for call in per_model.values()),
            "modules_in_train": sum(most_in_train.values()),
            "modules": max((call.sensitive.kinds for call in calls), key=len) or None,
            "dropouts": sum(call.dropouts for call in calls),
            "repeats": sum(one.repeats for one in found),
            "statistics": sum(call.statistics for call in calls),
            "same_input": sum(one.same_input for one in found),
            "losses": losses,
            "loss": None if unread or not losses else sum(one.total for one in found) / losses,
            "loss_is_whole": found[-1].is_whole,
            "loader": calls[0].loader,
            "site": site,
            "compared": next((one.compared for one in found if one.site is not None), None),
            "reads": sum(one.reads for one in read),
            "read_sum": sum(one.read_sum for one in read) if read else None,
            "read_site": None if worst is None else worst.read_site,
            "purpose": calls[-1].declared[1] if calls[-1].declared else None,
        }
        late = {
            "loss": [one.on_device for one in found if one.on_device is not None],
            "read_sum": [one.read_on_device for one in read if one.read_on_device is not None],
        }
        if not row["purpose"] and not row["repeats"] and not (losses and holders):
            for call in calls:
                self.program.asides.know(call)
        names = [name for name, values in late.items() if values]
        if names:
            totals = [self.torch.stack([one.double() for one in late[name]]).sum() for name in names]
            self._late.append((row, Readback(self.torch, totals, lambda r, v: _add_late(r, names, v, losses))))
        else:
            self._emit(row)
        self._note_function(site)

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


def _add_late(row: dict[str, Any], names: list[str], values: list[float], losses: int) -> None:
    """Fill in what was on a device."""
    for name, value in zip(names, values, strict=True):
        row[name] = value / losses if name == "loss" else (row[name] or 0.0) + value


def _found(call: Call) -> EvaluatedLosses:
    return call.evaluated or NOTHING_FOUND


def _grad_mode(calls: list[Call]) -> int:
    """The mode in which most was kept. With autograd on, outputs without a graph come of weights that are frozen."""
    if any(call.mode == GRAD and call.hooked for call in calls):
        return GRAD
    return max(NO_GRAPH if call.mode == GRAD else call.mode for call in calls)


def _same_pass(call: Call, following: Call) -> bool:
    if call.declared or following.declared:
        return call.declared == following.declared
    if call.batch is not None and following.batch is not None and call.batch.epoch != following.batch.epoch:
        return False
    return call.step == following.step and call.loader == following.loader


def _is_multiple(value: float, of: float) -> bool:
    """Whether one is the other, or was divided by a whole number: accumulation."""
    ratio = value / of
    return ratio > 0.5 and math.isclose(ratio, round(ratio), rel_tol=1e-4)


def _by_line(calls: list[Call]) -> list[list[Call]]:
    """Calls without a loader, parted where a model begins to be called from another line: another split is evaluated.

    Not where lines take turns, as they do when one batch is evaluated in two ways. The first one of a pass that is made
    as in training may have been taken for training: its line was not noted, and is that of the next.
    """
    paths: dict[int, list[tuple[tuple[int, int], ...]]] = {}
    for call in calls:
        of_model, path = paths.setdefault(call.model.number, []), _found(call).path
        if path and (not of_model or of_model[-1] != path):
            of_model.append(path)
    most = max(map(len, paths.values()))
    if most <= 1 or any(len(of_model) != len(set(of_model)) for of_model in paths.values()):
        return [calls]
    parts: list[list[Call]] = [[]]
    latest: dict[int, tuple[tuple[int, int], ...]] = {}
    for call in calls:
        path = _found(call).path
        if path and latest.get(call.model.number, path) != path:
            parts.append([])
            latest = {}
        if path:
            latest[call.model.number] = path
        parts[-1].append(call)
    return parts


def _by_model(calls: list[Call]) -> list[list[Call]]:
    """The calls of a pass by the model whose losses they led to: a live and an averaged one are evaluated apart."""
    judged = list(dict.fromkeys([call.model.number for call in calls if _found(call).count]))
    if len(judged) < 2 or any(call.declared for call in calls):
        return [calls]
    parts: dict[int, list[Call]] = {number: [] for number in judged}
    waiting: list[Call] = []
    for call in calls:
        waiting.append(call)
        if _found(call).count:
            parts[call.model.number] += waiting
            waiting = []
    parts[judged[-1]] += waiting
    return list(parts.values())


def _in_sanity_check() -> bool:
    """Whether Lightning tries a few batches of the validation before it trains."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_run_sanity_check" and "lightning" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
