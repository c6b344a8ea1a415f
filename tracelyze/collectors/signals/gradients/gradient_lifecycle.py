"""Whether gradients that a step consumed were cleared before the next backward added to them.

Seen on the gradients themselves, not on calls of zero_grad: autograd counts in-place changes of a tensor (`_version`),
so (is None, _version) read at four points per optimizer shows every way of clearing:

    after a step       what is there now has been consumed
    before a backward  still there, untouched? then nobody cleared it
    after a backward   its new versions (needed only when several optimizers share the model)
    before a step      untouched since consumed, and added to: carried over

What an optimizer did not consume itself may have been consumed by another one whose backward ran through both (the
generator's loss fills the discriminator's gradients): see `foreign_gradients`.

The first steps of a run are all sampled, then as many as the budget allows; SUSPECTED of them on suspicion. What is
known of an optimizer's gradients (`_State`) at a step that is sampled, and at one that is not:

                  sampled                                          not sampled
    before_step   carried, cleared, changed: into `row`            `row` gets their number alone
    after_step    `kept`: all that there is, to be found again     `kept`: nothing
    next backward `kept`: what nobody has cleared since            nothing is read

A step is sampled if its turn has come, if the one before it was `suspicious` (gradients were missing, cleared or
discarded; not after SUSPECTED such steps), or if gradients are `kept` that nobody clears.

An OS signal handler of the program may train in the middle of any method here, and change what is known. So lists are
replaced and never changed, and a method compares those that it took at one moment.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracelyze.collectors.program.lines.clearing_calls import ClearingCalls
from tracelyze.collectors.program.manual_updates import ManualOptimizer
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.gradients.foreign_gradients import Foreign
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors import shards
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import has_memory

NONE = -1
FIRST_STEPS = 5  # steps in which clearing between backward and step is watched without suspicion
CLOSURE = {"grads_cleared": None, "grads_changes": None}  # the backward ran inside the step
SUSPECTED = 200  # suspicious steps of an optimizer that are all sampled: what repeats itself is known by then
QUESTIONED = 4  # gradients whose values are read once where versions alone raise a suspicion


class _State:
    """What is known of one optimizer's gradients."""

    def __init__(self) -> None:
        # Versions of the gradients, each in the order of the parameters.
        self.consumed: list[int] = []  # that the latest step consumed
        self.last: list[int] = []  # after the latest step or backward
        self.at_step: list[int] = []  # as the latest step began
        self.kept: list[bool] = []  # whether a step consumed the gradient and nothing touched it since
        self.any_kept = False
        self.really_kept: bool | None = None  # whether the untouched gradients are not all zero, once asked
        self.question: Readback | None = None
        self.answer: dict[str, Any] = {}
        self.row: dict[str, int | None] = {}  # what the row of the step that runs gets at its end
        self.suspicious = False  # Gradients were missing, cleared or discarded at the latest step.
        self.fresh = True  # There was no backward of its training since its step.
        self.discarded = 0  # gradients of this step that were cleared between two backwards
        self.were_zero = False  # The latest backward left gradients that are zero.
        self.sampling = True  # The step that is being made is sampled.
        self.foreign = Foreign()


class GradientLifecycle(Signal):
    name = "gradient_lifecycle"
    columns = (
        "steps.parameters",
        "steps.grads_none",
        "steps.grads_carried",
        "steps.grads_cleared",
        "steps.grads_discarded",
        "steps.grads_changes",
        "steps.grads_mixed",
    )
    about = "Whether gradients were cleared between steps, and whether any were lost: seen on the gradients themselves."
    cost = "0.3 us per parameter tensor and sample"
    sampled = True
    first_steps = 100
    max_stride = 50
    pausable = ("before_backward", "after_backward", "before_step", "after_step")
    inactive = ("clip",)  # which counts where updates are made by hand
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._states: dict[int, _State] = {}
        self._suspected: Counter[int] = Counter()  # steps that were suspicious, by optimizer
        self._active: list[Tracked] = []  # the optimizers whose gradients the running backward may fill
        self._watch_backward = True
        self._none_sampled = False  # whether no optimizer's current step is sampled
        self._first: dict[int, int | None] = {}  # by optimizer: identity of its first gradient after a backward
        self._clearing = ClearingCalls(self.program.sites, self.progress)

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if self._none_sampled:
            return
        self._active = active = self.program.optimizers.active()
        if self._watch_backward:
            for one in active:
                state = self._state(one)
                if state.sampling and not state.fresh:
                    self._check_discarded(one)
        several = self._watch_backward = len(active) > 1
        for one in active:
            state = self._state(one)
            if one.count < FIRST_STEPS or state.suspicious:
                self._watch_backward = True
            if several or state.fresh:
                self._check_kept(one)
            if several and state.sampling:
                state.foreign.before_backward(versions(one))

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        if not self._active:
            return
        training = self.program.trainings.current
        active, self._active = self._active, []
        for tracked in active:
            state = self._state(tracked)
            if self._watch_backward and state.sampling:
                state.last, self._first[tracked.index] = versions(tracked), first_gradient(tracked)
                state.foreign.after_backward(state.last, self.progress.backwards)
                state.were_zero = self._are_zero([p.grad for p in tracked.parameters() if p.grad is not None])
            if training is None or training is tracked.training:
                state.fresh = False

    def clip(self, max_norm: Any, total_norm: Any) -> None:
        """Manual updates begin right after a backward, so clipping changes what they are about to consume."""
        for tracked in self.program.optimizers.active():
            if isinstance(tracked.optimizer, ManualOptimizer) and self._state(tracked).at_step:
                self._state(tracked).at_step = versions(tracked)

    def before_step(self, tracked: Tracked) -> None:
        if self._none_sampled and tracked.count:
            return
        self._none_sampled = False
        state = self._state(tracked)
        if isinstance(tracked.optimizer, ManualOptimizer):
            self.activate()
        if tracked.count and not tracked.is_active(self.progress.steps):
            # It did not step for long, and was not sampled.
            state.kept, state.any_kept, state.sampling = [], False, False
        if not state.sampling or tracked.inside_backward:
            state.foreign.unknown()
            state.row = {"parameters": len(tracked.parameters())}
            if isinstance(tracked.optimizer, ManualOptimizer):  # Its step is noticed too late to be sampled.
                state.at_step = versions(tracked)
            return
        now = versions(tracked)
        state.at_step = now
        carried = self._carried(state, now)
        missing = now.count(NONE)
        cleared = self._cleared(state, tracked, now)
        # What others' backwards have filled is thrown away as it should be: a critic's gradients of a generator's loss.
        alone = tracked.training is None or len(tracked.training.optimizers) == 1
        state.suspicious = missing > 0 or bool(cleared) or bool(state.discarded and alone)
        self._suspected[tracked.index] += state.suspicious
        state.row = {
            "parameters": len(now),
            "grads_none": missing,
            "grads_carried": carried,
            "grads_cleared": cleared,
            "grads_discarded": state.discarded if self._watch_backward else None,
            "grads_changes": self._changes(state, now, self._first.get(tracked.index), first_gradient(tracked)),
            "grads_mixed": state.foreign.before_step(now) if len(self._states) > 1 else None,
        }
        if state.discarded and alone:
            self._clearing.discarded()
        state.discarded = 0

    def finished(self) -> None:
        self._clearing.check()

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if row.get("skipped"):
            return  # No step has consumed gradients yet.
        due = self.due(tracked)
        if self._none_sampled and not due:
            self._pause()
            return
        if len(self._states) > 1 and not self._none_sampled:
            self._used_beside(tracked)
        self._none_sampled = False
        state = self._state(tracked)
        was_sampled = state.sampling
        suspected = state.suspicious and self._suspected[tracked.index] < SUSPECTED
        state.sampling = suspected or state.any_kept or due
        state.fresh = True
        if not state.sampling or tracked.inside_backward:
            self._hand_over(state, row)
            state.kept, state.any_kept = [], False
            if all(self._may_be_skipped(one) for one in self.program.optimizers.active()):
                self._none_sampled = True
                self._pause()
            return
        # Manual updates are noticed late, when gradients may be cleared already; the update itself left them.
        now = state.at_step if isinstance(tracked.optimizer, ManualOptimizer) else versions(tracked)
        closure = self.progress.backwards > self.progress.backwards_at_step  # the backward ran inside the step
        if was_sampled and closure:
            carried = self._carried(state, now)
            state.row |= {"grads_carried": carried, "grads_none": now.count(NONE)} | CLOSURE
        self._hand_over(state, row)
        state.consumed = state.last = now
        state.kept = [version != NONE for version in now]
        state.any_kept = any(state.kept)

    @staticmethod
    def _hand_over(state: _State, row: dict[str, Any]) -> None:
        row.update(state.row)
        state.row = {}

    def _used_beside(self, tracked: Tracked) -> None:
        """A step consumed gradients of a backward that may have filled those of other optimizers as well."""
        backward = self._state(tracked).foreign.filled_at
        for one in self.program.optimizers.active():
            if one is not tracked:
                state = self._state(one)
                state.foreign.another_stepped(backward, state.last if state.sampling else [], idle=state.fresh)

    def _may_be_skipped(self, tracked: Tracked) -> bool:
        """Whether the next step of this optimizer need not be sampled."""
        manual = isinstance(tracked.optimizer, ManualOptimizer) or tracked.inside_backward
        return tracked.count > FIRST_STEPS and not manual and not self._state(tracked).sampling

    def _pause(self) -> None:
        """Until the end of the step before the next one that is sampled."""
        self.pause(self.progress.steps + self.steps_until_due(at_end=True))

    def _state(self, tracked: Tracked) -> _State:
        state = self._states.get(tracked.index)
        if state is None:
            state = self._states[tracked.index] = _State()
        return state

    def _cleared(self, state: _State, tracked: Tracked, now: list[int]) -> int | None:
        """Gradients that the last backward filled and that are None, or zeros written since, at the step."""
        last = state.last
        if not self._watch_backward or len(last) != len(now):
            return None
        gone = sum(before != NONE and version == NONE for before, version in zip(last, now, strict=True))
        if gone or any(before == version for before, version in zip(last, now, strict=True)):
            return gone
        # Every gradient was changed in place after the backward: clipping and unscaling do that, and so does clearing
        # to zeros. Only the values show which, and they are read where nobody has to wait for them.
        gradients = [p.grad for p in tracked.parameters()]
        if not state.were_zero and self._are_zero(gradients):
            return len(gradients)
        return 0

    def _changes(self, state: _State, now: list[int], before: int | None, first: int | None) -> int | None:
        """In-place changes of a gradient since the last backward, of the middle one; -1 if it was replaced. `before`,
        `first`: the identity of the first gradient, then and now."""
        last = state.last
        if not self._watch_backward or len(last) != len(now) or state.fresh:
            return None
        if first is not None and before is not None and first != before:
            return -1
        pairs = [(before, version) for before, version in zip(last, now, strict=True) if NONE not in (before, version)]
        changes = sorted(version - before for before, version in pairs)
        return max(-1, changes[len(changes) // 2]) if changes else None

    def _check_discarded(self, tracked: Tracked) -> None:
        """Between two backwards of one step, gradients that the first had filled became None, or zero."""
        state = self._state(tracked)
        parameters = tracked.parameters()
        now = versions(tracked)
        kept, last, consumed = state.kept, state.last, state.consumed
        if not len(now) == len(last) == len(parameters):
            return
        # One that lies there as the step left it was not filled. Versions alone do not say so: a gradient made anew
        # after it was cleared begins at 0 again, as the consumed one may have.
        idle = [False] * len(now)
        if len(kept) == len(now) == len(consumed):
            idle = [
                untouched and after == before for untouched, after, before in zip(kept, last, consumed, strict=True)
            ]
        filled = [after != NONE and not untouched for after, untouched in zip(last, idle, strict=True)]
        gone = sum(was and version == NONE for was, version in zip(filled, now, strict=True))
        if not gone and any(filled):
            grown = zip(parameters, filled, now, last, strict=True)
            changed = [p.grad for p, was, version, before in grown if was and version > before]
            if len(changed) == sum(filled) and self._are_zero(changed):
                gone = len(changed)
        state.discarded = max(state.discarded, gone)

    def _are_zero(self, gradients: list[Any]) -> bool:
        """Whether gradients hold nothing but zeros, by a few of them, where reading them makes nobody wait."""
        some = gradients[:: max(1, len(gradients) // QUESTIONED)][:QUESTIONED]
        some = [shards.local(gradient) for gradient in some]
        if not all(has_memory(self.torch, one) and one.is_cpu for one in some):
            return False
        with self.torch.no_grad():
            return bool(some) and not any(bool(one.any()) for one in some)

    def _check_kept(self, tracked: Tracked) -> None:
        state = self._state(tracked)
        if not state.any_kept:
            return
        parameters = tracked.parameters()
        now = versions(tracked)
        kept, last = state.kept, state.last
        if not len(now) == len(last) == len(kept) == len(parameters):  # parameters were added: start afresh
            state.kept, state.any_kept = [], False
            return
        kept = [was and version != NONE and version == before
                for was, version, before in zip(kept, now, last, strict=True)]  # fmt: skip
        state.kept, state.any_kept = kept, any(kept)
        if state.any_kept and state.really_kept is None:
            self._ask(state, [p.grad for p, was in zip(parameters, kept, strict=True) if was])
        if state.really_kept is False:
            state.any_kept = False

    def _ask(self, state: _State, gradients: list[Any]) -> None:
        """`grad.data.zero_()` and a fresh tensor of zeros change no version: read the values, once."""
        if state.question is None:
            parts = [shards.local(gradient) for gradient in gradients]
            dense = [part for part in parts if has_memory(self.torch, part) and part.numel()]
            chosen = dense[:: max(1, len(dense) // QUESTIONED)][:QUESTIONED]
            if not chosen:
                return
            with self.torch.no_grad():
                largest = [gradient.abs().max() for gradient in chosen]
            state.question = Readback(self.torch, largest, lambda row, values: row.update(kept=any(values)))
        if state.question.arrived():
            state.question.fill(state.answer)
            state.really_kept = bool(state.answer["kept"])

    @staticmethod
    def _carried(state: _State, now: list[int]) -> int | None:
        if not state.any_kept:
            return 0
        kept, consumed = state.kept, state.consumed
        if state.really_kept is None or not len(now) == len(kept) == len(consumed):
            return None
        return sum(was and version > before for was, version, before in zip(kept, now, consumed, strict=True))


def first_gradient(tracked: Tracked) -> int | None:
    """The identity of the first parameter's gradient that there is."""
    return next((id(gradient) for p in tracked.parameters() if (gradient := p.grad) is not None), None)


def versions(tracked: Tracked) -> list[int]:
    """Version counter of each parameter's gradient, -1 where it is None."""
    parameters = tracked.parameters()
    if tracked.sharded:  # FSDP2 adds to the part of this rank, past the DTensor around it
        return [NONE if (gradient := p.grad) is None else shards.local(gradient)._version for p in parameters]
    return [NONE if (gradient := p.grad) is None else gradient._version for p in parameters]
