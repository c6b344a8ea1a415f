"""The fast path through the hooks: steps that are like those before them are skipped, and leave a row all the same.

A loop that has settled makes the same few calls at every step: one model, a loss and a backward, once or several
times, and one step of one optimizer, whose closure may do the rest. Where every signal is either paused or can do
without, the hooks then only check that this is still so (`expected.py`), for SKIPPED_STEPS steps in a row, and a row
(`rows.py`) gets what signals read quickly (`Signal.fast_values`) beside what held at the step before
(`Signal.copied_columns`). Any other call ends that at once, and the events that were skipped of the step that runs are
dispatched after all (`replay.py`). Several optimizers that step in turn are skipped by whole rounds (`rounds.py`): a
class of its own, since a loop of one optimizer needs a fifth fewer bytecodes here than there (ARCHITECTURE.md).

On a device the loss is not known before the backward begins. There, short steps of one optimizer are skipped, and their
rows wait until a run of them has ended: their losses are then read in one piece (`late_rows.py`).
"""

from __future__ import annotations

import math
import threading
import traceback
import weakref
from collections.abc import Callable, Collection
from time import perf_counter
from typing import Any, Protocol

from tracelyze import redaction
from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.program.calls import LiveGraph
from tracelyze.collectors.program.models import MAX_TENSORS, tensors_of
from tracelyze.collectors.program.optimizers import Tracked, wrapping
from tracelyze.collectors.recording.fast_path.asides import Asides
from tracelyze.collectors.recording.fast_path.cost import TimedFastPath
from tracelyze.collectors.recording.fast_path.expected import (
    BACKWARD,
    BACKWARD_ENDS,
    CALL,
    STEP,
    STEP_ENDS,
    Aside,
    Expected,
    SkippedCall,
    SkippedEvents,
    inputs_of,
)
from tracelyze.collectors.recording.fast_path.rounds import Round, Rounds, SkippedRound
from tracelyze.collectors.recording.fast_path.rows import LikeStep, SkippedRows, weighted_sum
from tracelyze.collectors.recording.fast_path.seen import SeenSteps
from tracelyze.collectors.recording.fast_path.skippable import Skippable
from tracelyze.collectors.recording.fast_path.usual import usual_loss
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.signals.gradients.microbatches import key_of
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

SKIPPED_STEPS = 52  # in a row; 53 with the full step after them, a prime: it keeps step with no signal's cadence
BETWEEN_LATE = 2  # steps on a device that are dispatched between two runs: time on it is taken from one to the next
RETRIED_AFTER = 22  # steps after a step that began as those before it and did not end so
ROUNDS_RETRIED_AFTER = 2  # rounds (rounds.py), for the same reason


class _ThisThread(threading.local):
    fast_path: FastPath | Rounds | TimedFastPath | None = None  # of the recording whose training this thread runs


this_thread = _ThisThread()


class ReplayedStep(Protocol):
    """Dispatches what was skipped (`replay.Replay`)."""

    def step(self, expected: Expected, skipped: SkippedEvents) -> None: ...

    def round(self, expected: Round, skipped: SkippedRound) -> None: ...


class FastPath:
    """The fast path of one recording.

    Each hook first asks whether it is `on`. If so, the hook reports its call (`forward`, `backward_begins`,
    `backward_ends`, `step_begins`, `step_ends`), and the answer says whether the call was the expected one. If it was
    not, the hook takes the full path, which begins with `catch_up`.
    """

    def __init__(
        self,
        torch: Any,
        guard: Guard,
        skippable: Skippable,
        losses: LossSampling,
        rows: SkippedRows,
        seen: SeenSteps,
        record_event: Callable[[str, str, str], None],
    ) -> None:
        """No step is skipped before `replay` is set: it is made of parts that are made with this object."""
        self.on = False
        # Steps are being skipped, or were until now: then `on` is False already, and `catch_up` has yet to be called.
        self.active = False
        self.progress = skippable.progress
        self.losses = losses
        self.replay: ReplayedStep | None = None
        self._torch = torch
        self._guard = guard
        self._skippable = skippable
        self._rows = rows
        self._record_event = record_event
        self._interrupted = False
        self._asides = Asides(torch, guard, skippable)
        self._expected = Expected()
        self._skipped = SkippedEvents()
        self.rounds = Rounds(torch, guard, skippable, losses, rows, seen, self._asides, self)

    # Whether to skip steps

    def consider(self, tracked: Tracked, row: dict[str, Any]) -> None:
        """Begin to skip steps, if those that follow may be skipped where they are like this one. `row` is its row.

        Called at the end of a step whose events were dispatched.
        """
        skippable, progress, self._interrupted = self._skippable, self.progress, False
        program = skippable.program
        # What is neither called once before each backward nor stepped by one optimizer may still repeat itself.
        steps, several = progress.steps, program.optimizers.several or not program.calls.has_usual_model
        calls = self._asides.calls_of_step()
        plain = several and skippable.is_plain(tracked, row)
        self.rounds.seen.step_ends(tracked, row, program.backwards.of_step, several, plain)
        expected = skippable.expected(tracked, row)
        if self.replay is None or (expected is None and not plain) or steps < skippable.not_before:
            return
        rows = self._rows
        if expected is not None:
            backwards = len(expected.backwards)
            allowed = skippable.rounds(SKIPPED_STEPS, 1, backwards, max(backwards, calls))
            if allowed < 1:
                return
            self._asides.begin(allowed * backwards)
            self._expected, self._skipped = expected, SkippedEvents()
            self.rounds.taken = False
            rows.begin([LikeStep(row, losses_are_read=bool(expected.factors))], allowed)
        elif not self.rounds.begins(SKIPPED_STEPS):
            return
        skips = self.rounds if self.rounds.taken else self
        path = TimedFastPath(skips, rows.cost) if rows.cost.run_begins() else skips
        if progress.steps == steps:  # else an OS signal handler has trained meanwhile
            this_thread.fast_path, self.active = path, True
            self.on = self.rounds.on = not self._interrupted

    # A step that is skipped

    def model(self) -> Any:
        """The module that is called next."""
        return self._expected.module()

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> bool:
        """A module, the first of `args`, returned `output`. Returns whether the call was the expected one.

        Such a call is only counted, and noted for the case that the step turns out to be unlike those before.
        """
        expected, skipped = self._expected, self._skipped
        try:
            given: Any = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
            if (
                type(given) is self._torch.Tensor
                and expected.order[skipped.count] == CALL
                and expected.module() is args[0]
                and not self._guard.function_modes()
                and (shape := given.shape)
                and shape[0] == expected.batch_size
                and expected.in_train(args[0])
            ):
                graph = self._graph_behind(output)
                call = None if graph is None else self._call(graph, given, args, kwargs)
                if call is not None:
                    losses = self.losses
                    if losses.next <= losses.count:
                        losses.choose_next()
                    if self.progress.loader is None:
                        self._skippable.program.inputs.called(given)
                    skipped.calls = [*skipped.calls, call]  # An OS signal handler may train after an append, not this.
                    skipped.count += 1
                    return True
            if not self._torch.is_grad_enabled():
                aside = self._asides.skipped(args[0], given)
                if aside is not None:
                    skipped.asides = [*skipped.asides, Aside(skipped.count, len(skipped.calls), aside)]
                    return True
            self.progress.dropouts += self._skippable.program.fused_dropouts.unwatched(args[0])
        except Exception as error:
            self.fail(error)
        self.on = False
        return False

    def may_be_aside(self, module: Any) -> bool:
        """Whether calls of this module, which need not be the expected one, may be skipped."""
        return self._skippable.program.asides.may_be(module)

    def _graph_behind(self, output: Any) -> LiveGraph | None:
        """An object that lives as long as the autograd graph of the call; None if there is no graph.

        The nodes behind the outputs hold it, so that a weak reference to it shows whether the graph is still alive.
        """
        tensor = self._torch.Tensor
        if type(output) is tensor:
            node = output.grad_fn
            if node is None:
                return None
            node.metadata["tracelyze"] = only = LiveGraph(self._skippable.program.calls)
            return only
        values: Collection[Any] = output.values() if isinstance(output, dict) and len(output) <= MAX_TENSORS else ()
        nodes = [one.grad_fn for one in values if type(one) is tensor]
        if not nodes or len(nodes) != len(values):  # no mapping of tensors alone
            values = tensors_of(self._torch, output)
            nodes = [one.grad_fn for one in values if type(one) is tensor]
            if len(nodes) != len(values):
                return None
        graph = None
        for node in nodes:
            if node is not None:
                if graph is None:
                    graph = LiveGraph(self._skippable.program.calls)
                node.metadata["tracelyze"] = graph
        return graph

    def _call(self, graph: LiveGraph, given: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SkippedCall | None:
        """Count a call and return what is noted of it.

        None for a call with the same input as an earlier one of the step: the step then has fewer micro-batches than
        expected.
        """
        inputs = () if len(args) + len(kwargs) == 2 else inputs_of(self._torch, args[1:], kwargs)
        if not self._expected.factors:
            self.progress.forwards += 1
            # SkippedCall() would be a call in Python.
            return tuple.__new__(SkippedCall, (weakref.ref(graph), weakref.ref(given), inputs, None, None))
        key = key_of(self._torch, given)
        if key is not None and key in [call.key for call in self._skipped.calls]:
            return None
        self.progress.forwards += 1
        batch = self._skippable.program.batches.used_by_skipped()  # It may be gone before the step is.
        return SkippedCall(weakref.ref(graph), weakref.ref(given), inputs, key, batch)

    def backward_begins(self, roots: Any, retains_graph: bool) -> bool:
        """torch.autograd.backward was called. Returns whether the call was the expected one."""
        expected, skipped = self._expected, self._skipped
        try:
            if expected.order[skipped.count] == BACKWARD:
                backward = expected.backwards[len(skipped.losses)]
                loss = usual_loss(self._torch, self._guard, roots, retains_graph, backward)
                if loss is not None:
                    skipped.count += 1
                    skipped.losses.append(loss)
                    progress = self.progress
                    progress.backwards += 1
                    progress.in_backward = True
                    return True
        except Exception as error:
            self.fail(error)
        self.on = False
        return False

    def backward_ends(self) -> bool:
        """torch.autograd.backward returned. Returns whether it was the expected one: no optimizer stepped within."""
        expected, skipped = self._expected, self._skipped
        if not self.active or expected.order[skipped.count] != BACKWARD_ENDS:
            return False
        if self._skippable.program.optimizers.inside_now is not None:
            return False
        self.progress.in_backward = False
        if expected.device is None:
            losses = expected.backwards[0].losses
            if skipped.losses_before is None:
                skipped.losses_before = losses.so_far()
            losses.follow(skipped.losses[-1])
        skipped.count += 1
        return True

    def step_begins(self, optimizer: Any) -> bool:
        """The step of an optimizer was called. Returns whether the call was the expected one."""
        expected, skipped = self._expected, self._skipped
        if expected.order[skipped.count] == STEP and expected.optimizer() is optimizer:
            self.progress.backwards_at_step = self.progress.backwards
            skipped.count += 1
            return True
        if optimizer in wrapping:
            return True
        self.on = False
        return False

    def step_ends(self, optimizer: Any) -> bool:
        """The step of an optimizer returned. Returns whether it was the expected one: the step then has its row."""
        expected, skipped, guard = self._expected, self._skipped, self._guard
        tracked, writer = expected.tracked(), guard.writer
        as_before = expected.order[skipped.count] == STEP_ENDS and expected.optimizer() is optimizer
        if tracked is None or not as_before or writer.off or writer.threads.paused:
            if optimizer in wrapping:
                return True
            self.on = False
            return False
        try:
            factors, progress, late = expected.factors, self.progress, expected.device is not None
            loss: Any = skipped.losses
            if not late:
                loss = weighted_sum(loss, factors) if factors else loss[0]
            # So that an OS signal handler that trains, and ends this, has nothing to replay. Nothing is called here.
            asides, skipped.asides = skipped.asides, []
            skipped.count, skipped.losses_before, skipped.calls, skipped.losses = 0, None, [], []
            time = perf_counter() - guard.clock.zero
            progress.steps = tracked.at_step = progress.steps + 1
            tracked.count = count = tracked.count + 1
            if count > progress.longest:
                progress.longest = count
            rows = self._rows
            if asides:
                self._asides.step_ended(asides)
            if not (rows.hold(tracked, time, loss, expected) if late else rows.write(tracked, time, loss)):
                self.end()
                if late:
                    self._skippable.not_before = progress.steps + BETWEEN_LATE
                dispatcher = self._skippable.dispatcher
                if progress.steps >= dispatcher.resumes_at:
                    dispatcher.resume_until(progress.steps)
        except Exception as error:
            self.fail(error)
        return True

    # Ending it

    def interrupt(self) -> None:
        """End the fast path, because a signal needs the events of the step that runs. May be called on any thread.

        What was skipped of the step is dispatched with the next call that a hook sees, on the thread that trains.
        """
        self._interrupted = True
        self.on = self.rounds.on = False

    def leave(self) -> None:
        """End the fast path before something changes that signals may read. Called on the thread that trains.

        The skipped events of the step are dispatched at once, for they happened before the change.
        """
        skipped = self._skipped
        amid_step = self.rounds.amid_step() if self.rounds.taken else skipped.count or skipped.asides
        if self.active and amid_step:
            self.catch_up()
        else:
            self.interrupt()

    def catch_up(self) -> None:
        """End the fast path, and dispatch what was skipped of the step that runs: it is not like those before it."""
        expected, skipped, replay = self._expected, self._skipped, self.replay
        if not self.active:
            return
        if self.rounds.taken:
            self._catch_up_in_round()
            return
        # First of all: an OS signal handler may train, and come here too.
        self.active = self.on = False
        self._skipped = SkippedEvents()
        if skipped.count and not self._rows.count:
            # No step was skipped to its end: do not try at every step.
            self._skippable.not_before = self.progress.steps + RETRIED_AFTER
        self.end()
        if replay is not None and (skipped.count or skipped.asides):
            replay.step(expected, skipped)

    def _catch_up_in_round(self) -> None:
        rounds, replay = self.rounds, self.replay
        expected, skipped = rounds.expected, rounds.skipped
        self.active = self.on = rounds.on = False
        if skipped.count and not self._rows.count:
            self._skippable.not_before = self.progress.steps + ROUNDS_RETRIED_AFTER * len(expected.steps)
        self.end()
        rounds.skipped = SkippedRound()
        if replay is not None and (skipped.count or skipped.asides):
            replay.round(expected, skipped)

    def end(self) -> None:
        """Dispatch the steps that follow."""
        self.active = self.on = False
        if self.rounds.taken:
            self.rounds.end()
        self._skippable.program.calls.check_next()
        self._rows.end()

    def fail(self, error: Exception) -> None:
        """Switch the fast path off for the rest of the run, and record why.

        An exception that an OS signal handler of the program raised meanwhile is the program's own, and is raised on.
        """
        if raised_by_a_signal_handler(error):
            raise error
        self.on = self.rounds.on = False
        self._skippable.not_before = math.inf
        text = redaction.redact_text("".join(traceback.format_exception(error)))
        self._record_event("collector-error", "fast_path", text)
