"""The fast path of loops in which several optimizers step in turn: a generator and its critic, two halves of a model.

Such a loop repeats itself in rounds: the steps of a round are each like the step at the same place of the round
before (`seen.py`). Steps are skipped by whole rounds, which begin and end where no call waits for its backward. Unlike
with one optimizer, every call is watched: which calls a backward runs through says whose loss it is. So a skipped round
is known to be like those before it, call by call and backward by backward.

Where a round ends otherwise than expected, some of its steps have their rows already. What is known of the program is
then brought up to date for these, and the events of the step that runs are dispatched (`replay.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.cadence.usual_losses import UsualLosses
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.models import carries_graph
from tracelyze.collectors.program.optimizers import wrapping
from tracelyze.collectors.recording.fast_path.asides import Asides
from tracelyze.collectors.recording.fast_path.expected import (
    BACKWARD,
    BACKWARD_ENDS,
    CALL,
    STEP,
    STEP_ENDS,
    Aside,
    ExpectedBackward,
    inputs_of,
)
from tracelyze.collectors.recording.fast_path.rows import LikeStep, SkippedRows, weighted_sum
from tracelyze.collectors.recording.fast_path.seen import SeenStep, SeenSteps, Shape
from tracelyze.collectors.recording.fast_path.skippable import Skippable, read_of
from tracelyze.collectors.recording.fast_path.usual import usual_loss
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.signals.gradients.microbatches import key_of


@dataclass(slots=True)
class ExpectedCall:
    """A call of a model within a round."""

    before: Call  # the call that it is like
    module: Callable[[], Any]  # weak reference
    first_of_step: int  # number of its step's first call in the round
    samples: int | None  # of the batch of the loader to which the input belongs
    same_batch: bool  # whether that is the batch of the call before it in the round
    other_input: bool = False  # whether its input is no other call's of the step: several backwards, of other batches


@dataclass(frozen=True, slots=True)
class ExpectedStep:
    """A step within a round."""

    seen: SeenStep  # that it is like
    own: tuple[int, ...]  # the backwards of the round that it consumes
    factors: list[float]  # weights of their losses in its loss


@dataclass(slots=True)
class Round:
    """What every round that is skipped must look like."""

    order: tuple[int, ...] = ()
    calls: list[ExpectedCall] = field(default_factory=list)
    backwards: list[ExpectedBackward] = field(default_factory=list)
    steps: list[ExpectedStep] = field(default_factory=list)


@dataclass(slots=True)
class SkippedRound:
    """What was skipped of the round that runs: the first `count` events of the expected order."""

    count: int = 0
    steps: int = 0  # of the round that have ended
    step_begins: int = 0  # the number of events before the step that runs
    calls: list[Call] = field(default_factory=list)
    asides: list[Aside] = field(default_factory=list)  # of the step that runs
    losses: list[float] = field(default_factory=list)  # of the backwards
    # Of each backward of the step that runs: the usual losses, and what they were, to undo what it added.
    losses_before: list[tuple[UsualLosses, tuple[float | None, float]]] = field(default_factory=list)


class Control(Protocol):
    """What decides whether steps are skipped (`path.FastPath`)."""

    on: bool
    active: bool

    def interrupt(self) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def end(self) -> None: ...


class Rounds:
    """Skips rounds. The hooks report their calls to it as they do to a `FastPath`, which says when this is `on`."""

    def __init__(
        self,
        torch: Any,
        guard: Guard,
        skippable: Skippable,
        losses: LossSampling,
        rows: SkippedRows,
        seen: SeenSteps,
        asides: Asides,
        control: Control,
    ) -> None:
        self.on = False
        self.taken = False  # Rounds are being skipped, or were skipped last, and not steps of one optimizer.
        self.progress, self.losses = skippable.progress, losses
        self.skipped = SkippedRound()
        self.expected = Round()
        self._torch, self._guard, self._control = torch, guard, control
        self._skippable, self._program, self._rows = skippable, skippable.program, rows
        self._asides = asides
        self.seen = seen
        self._reached: list[Call] = []  # by the backward before the first round

    def begins(self, most: int) -> bool:
        """Whether the following steps may be skipped, at most `most` of them. Called when a step has ended."""
        program = self._program
        if program.calls.unsettled or program.backwards.unused or not self._skippable.dispatcher.steps_may_be_skipped():
            return False
        steps = self.seen.round({one.index for one in program.optimizers.active()})
        expected = self._round(steps) if steps else None
        if expected is None:
            return False
        calls = len(expected.calls)
        every = calls + sum([one.asides for one in steps])
        allowed = self._skippable.rounds(most, len(steps), len(expected.backwards), every)
        if allowed < 1:
            return False
        self._asides.begin(allowed * calls)
        self.expected, self.skipped = expected, SkippedRound()
        self._reached, self.taken = program.calls.reached, True
        like = [LikeStep(one.row, any(back.is_mean is not None for back in one.own)) for one in steps]
        self._rows.begin(like, allowed * len(steps))
        return True

    def model(self) -> Any:
        """The module that is called next."""
        calls = self.expected.calls
        return calls[len(self.skipped.calls) % len(calls)].module()

    def may_be_aside(self, module: Any) -> bool:
        """Whether calls of this module, which need not be the expected one, may be skipped."""
        return self._program.asides.may_be(module)

    def end(self) -> None:
        """The steps that follow are dispatched."""
        self.on = False
        if not self.skipped.count:  # The round before is over: what a backward finds of the one before it is as usual.
            self._program.calls.reached = self._reached
        if self._rows.count >= len(self.expected.steps):
            self.seen.latest.extend([one.seen for one in self.expected.steps])

    def amid_step(self) -> bool:
        """Whether events were skipped of the step that runs."""
        return self.skipped.count > self.skipped.step_begins or bool(self.skipped.asides)

    def _round(self, steps: list[SeenStep]) -> Round | None:
        """What a round must look like that is like these steps; None if the fast path cannot tell."""
        found = Round()
        for step in steps:
            if step.shape is None or not _in_order(step.order) or not self._add(found, step, step.shape):
                return None
        # No call is reached by a backward of another round, and none by no backward at all.
        reached = {at for backward in found.backwards for at in backward.reached}
        whole = bool(found.calls) and reached == set(range(len(found.calls)))
        tracked = steps[0].tracked()
        return found if whole and tracked is not None and self._skippable.trains_alone(tracked) else None

    def _add(self, found: Round, step: SeenStep, shape: Shape) -> bool:
        """Add a step to a round. Returns whether the fast path can tell what one like it must look like."""
        tracked, several = step.tracked(), len(step.own) > 1
        if tracked is None or any(one.sampled_only or (several and one.factor is None) for one in step.own):
            return False
        first_backward = len(found.backwards)
        guards = self._skippable.guards(step.row)
        before = _add_calls(found, step)
        backwards = iter(step.backwards)
        for event in step.order:
            if event == CALL:
                before += 1
            elif event == BACKWARD_ENDS:
                one = next(backwards)
                reached, losses = tuple([before - ago for ago in one.reached]), tracked.training.losses(one.models)
                found.backwards.append(ExpectedBackward(losses, one.retains_graph, guards, reached=reached))
        found.order += step.order
        own = tuple([len(found.backwards) - 1 - ago for ago in shape.own])
        if not own or min(own) < 0:
            return False
        if several and (shape.micro_batches != len(own) or min(own) < first_backward):
            return False
        for at, backward in zip(own, step.own, strict=True):
            found.backwards[at].read, found.backwards[at].before = read_of(backward), backward
            for number in found.backwards[at].reached if several else ():
                if number < 0:
                    return False
                found.calls[number].other_input = True
        factors = [one.factor for one in step.own if one.factor is not None] if several else [1.0]
        found.steps.append(ExpectedStep(step, own, factors))
        return True

    # A round that is skipped

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> bool:
        """A module, the first of `args`, returned `output`. Returns whether the call was the expected one."""
        expected, skipped = self.expected, self.skipped
        try:
            torch, number = self._torch, len(skipped.calls)
            given: Any = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
            if not torch.is_grad_enabled():
                aside = self._asides.skipped(args[0], given)
                if aside is not None:
                    skipped.asides = [*skipped.asides, Aside(skipped.count, number, aside)]
                    return True
            elif expected.order[skipped.count] == CALL and type(given) is torch.Tensor and given.dim():
                like = expected.calls[number]
                before = like.before
                if (
                    like.module() is args[0]
                    and given.size(0) == before.batch_size
                    and any(carries_graph(torch, one) for one in args[1:]) is before.carries_on
                    and before.model.in_train(args[0])
                    and not self._guard.function_modes()
                ):
                    key = key_of(torch, given) if like.other_input else None
                    known = key is not None and key in [one.input_key for one in skipped.calls[like.first_of_step :]]
                    call = None if known else self._call(before, output)
                    if call is not None:
                        call.input_key = key
                        self._counted(call, like, given)
                        if call.batch is None:
                            self._program.inputs.called(given)
                            call.given = inputs_of(torch, args[1:], kwargs)
                        losses = self.losses
                        if losses.next <= losses.count:
                            losses.choose_next()
                        return True
        except Exception as error:
            self._control.fail(error)
        self._control.interrupt()
        return False

    def _call(self, before: Call, output: Any) -> Call | None:
        """A call like the one before, which is watched; None if no backward can run through its output."""
        now, calls = perf_counter() - self._guard.clock.zero, self._program.calls
        call = Call(before.model, now, now, self.progress.steps, GRAD)
        call.in_train, call.carries_on = True, before.carries_on  # what signals ask of the latest call
        calls.watch(call, output)
        return call if call.hooked else None

    def _counted(self, call: Call, like: ExpectedCall, given: Any) -> None:
        """Count a call, and note what it used."""
        skipped, progress = self.skipped, self.progress
        progress.forwards = call.number = progress.forwards + 1
        call.batch = batch = self._program.batches.used_by(given)
        call.loader = progress.loader
        calls = skipped.calls
        if (None if batch is None else batch.samples) != like.samples or (
            len(calls) > like.first_of_step and (batch is calls[-1].batch) is not like.same_batch
        ):
            self._control.interrupt()  # The call is noted all the same: it is dispatched with what follows.
        self._program.calls.latest = call
        skipped.calls = [*calls, call]  # An OS signal handler may train after an append, but not after this.
        skipped.count += 1

    def backward_begins(self, roots: Any, retains_graph: bool) -> bool:
        """torch.autograd.backward was called. Returns whether the call was the expected one."""
        expected, skipped = self.expected, self.skipped
        try:
            if expected.order[skipped.count] == BACKWARD:
                backward = expected.backwards[len(skipped.losses)]
                loss = usual_loss(self._torch, self._guard, roots, retains_graph, backward)
                if loss is not None:
                    skipped.count += 1
                    skipped.losses.append(loss)
                    progress = self.progress
                    progress.backwards += 1
                    progress.in_backward, progress.retains_graph = True, retains_graph
                    self._program.calls.reached = []
                    return True
        except Exception as error:
            self._control.fail(error)
        self._control.interrupt()
        return False

    def backward_ends(self) -> bool:
        """torch.autograd.backward returned. Returns whether it ran through the expected calls, and no optimizer stepped
        within."""
        expected, skipped = self.expected, self.skipped
        if not self._control.active or expected.order[skipped.count] != BACKWARD_ENDS:
            return False
        backward, program = expected.backwards[len(skipped.losses) - 1], self._program
        if program.optimizers.inside_now is not None:
            return False
        if program.calls.reached != [skipped.calls[at] for at in backward.reached]:
            return False
        self.progress.in_backward = False
        losses = backward.losses
        skipped.losses_before.append((losses, losses.so_far()))
        losses.follow(skipped.losses[-1])
        skipped.count += 1
        return True

    def step_begins(self, optimizer: Any) -> bool:
        """The step of an optimizer was called. Returns whether the call was the expected one."""
        expected, skipped = self.expected, self.skipped
        if expected.order[skipped.count] == STEP:
            tracked = expected.steps[skipped.steps].seen.tracked()
            if tracked is not None and tracked.optimizer is optimizer:
                self.progress.backwards_at_step = self.progress.backwards
                skipped.count += 1
                return True
        if optimizer in wrapping:
            return True
        self._control.interrupt()
        return False

    def step_ends(self, optimizer: Any) -> bool:
        """The step of an optimizer returned. Returns whether it was the expected one: the step then has its row."""
        expected, skipped, writer = self.expected, self.skipped, self._guard.writer
        step = expected.steps[skipped.steps]
        tracked = step.seen.tracked()
        as_before = expected.order[skipped.count] == STEP_ENDS and tracked is not None
        if (
            tracked is None
            or not as_before
            or tracked.optimizer is not optimizer
            or writer.off
            or writer.threads.paused
        ):
            if optimizer in wrapping:
                return True
            self._control.interrupt()
            return False
        try:
            progress = self.progress
            asides = skipped.asides
            loss = weighted_sum([skipped.losses[at] for at in step.own], step.factors)
            # First of all, so that an OS signal handler that trains, and ends this, finds nothing to dispatch.
            self._step_is_over(expected, skipped)
            time = perf_counter() - self._guard.clock.zero
            progress.steps += 1
            tracked.has_stepped(progress.steps)
            if tracked.count > progress.longest:
                progress.longest = tracked.count
            self._program.optimizers.stepped(step.seen.tracked)
            if asides:
                self._asides.step_ended(asides)
            if not self._rows.write(tracked, time, loss):
                self._control.end()
                dispatcher = self._skippable.dispatcher
                if progress.steps >= dispatcher.resumes_at:
                    dispatcher.resume_until(progress.steps)
        except Exception as error:
            self._control.fail(error)
        return True

    def _step_is_over(self, expected: Round, skipped: SkippedRound) -> None:
        if skipped.count + 1 == len(expected.order):
            self.skipped = SkippedRound()
        else:
            skipped.losses_before, skipped.asides = [], []
            skipped.count = skipped.step_begins = skipped.count + 1
            skipped.steps += 1


def _add_calls(found: Round, step: SeenStep) -> int:
    """Add the calls of a step to a round. Returns the number of the last call before them."""
    first, latest = len(found.calls), None
    for call in step.calls:
        batch, samples = call.batch, None if call.batch is None else call.batch.samples
        same = latest is not None and batch is latest.batch
        found.calls.append(ExpectedCall(call, call.model.module, first, samples, same))
        latest = call
    return first - 1


def _in_order(events: tuple[int, ...]) -> bool:
    """Whether a step has its backwards before it: none is called by a closure, and none has raised."""
    before = events[:-2]
    ended = [event for event in before if event != CALL]
    pairs = [BACKWARD, BACKWARD_ENDS] * (len(ended) // 2)
    return events[-2:] == (STEP, STEP_ENDS) and ended == pairs
