"""Outermost module calls, and which of them trained: a call trained if a backward ran through its output.

That is seen directly: a pre-hook on the output's autograd node runs when a backward reaches it, and dies with the
graph. Calls without autograd, and calls whose graph died without a backward or still has none after PATIENCE_STEPS,
evaluated something. Where every backward ran through the one call before it, step after step, the next calls are
assumed to train as well, and only one in CHECKED_EVERY is watched (`habit.py`).
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.program.call import GRAD, INFERENCE, NO_GRAD, Call
from tracelyze.collectors.program.consumed.batches_in_hand import Batch, BatchesInHand
from tracelyze.collectors.program.habit import Habit
from tracelyze.collectors.program.lines import caller
from tracelyze.collectors.program.models import (
    Model,
    carries_graph,
    first_tensor,
    samples_in_sequence,
    symbol,
    tensors_of,
)
from tracelyze.collectors.program.modules import mode_sensitivity
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.program.saved_files import unwrapped
from tracelyze.collectors.system.clock import Clock

PATIENCE_STEPS = 3  # an output that no backward reached within this many optimizer steps was not for training
MAX_OPEN_CALLS = 20_000
MAX_MODELS = 1000
LATEST = 16  # calls among which a backward looks for those that it recomputes
MAX_REACHED = 64  # calls that one backward is known to have run through


class _Watch:
    """Lives as long as the autograd node that holds it, one for each output: the call's graph goes with the last."""

    __slots__ = ("call", "calls")

    def __init__(self, call: Call, calls: Calls) -> None:
        self.call = call
        self.calls = calls
        calls.live_graphs += call.watched == 0
        call.watched += 1

    def reached(self, _gradients: Any) -> None:
        self.call.trained = True
        if len(self.calls.reached) < MAX_REACHED:
            self.calls.reached.append(self.call)

    def __del__(self) -> None:
        call = getattr(self, "call", None)
        if call is None:  # a signal's handler raised before the first line above
            return
        call.watched -= 1
        if call.watched == 0:
            call.dead = True
            self.calls.live_graphs -= 1


class LiveGraph:
    """Lives as long as the autograd node that holds it. Of a skipped call, which has no `Call` yet."""

    __slots__ = ("__weakref__", "_calls")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        calls.live_graphs += 1

    def __del__(self) -> None:
        calls = getattr(self, "_calls", None)
        if calls is not None:
            calls.live_graphs -= 1


class Recomputation:
    """Finds calls that activation checkpointing repeats.

    Checkpointing calls a module without autograd in the forward, and again with autograd while the backward runs. The
    second call shows that the first one trained.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def begins(self, root: Any) -> None:
        """Nothing to do: a call within a backward is never taken for an outermost one."""

    def returned(self, module: Any, output: Any, args: Any = (), kwargs: Any = None) -> None:
        """A module that the backward called has returned."""
        self._calls.recomputed(module)

    def ends(self, root: Any, output: Any) -> None:
        """Nothing to do, as in `begins`."""


class Calls:
    """The calls that are not yet known to have trained or evaluated, in order."""

    def __init__(
        self,
        torch: Any,
        progress: Progress,
        clock: Clock,
        batches: BatchesInHand,
        emit: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._torch, self._progress, self._clock, self._emit = torch, progress, clock, emit
        self._batches = batches
        self._models: ByIdentity[Model] = ByIdentity()
        self._modules: list[weakref.ref[Any]] = []  # by number
        self._numbers = 0
        self.unsettled: deque[Call] = deque()  # not yet known to have trained or evaluated
        self.live_graphs = 0
        self.latest: Call | None = None
        self.reached: list[Call] = []  # by the backward that is running, the last call first
        self._habit = Habit()
        self._recomputation = Recomputation(self)

    def record(self, module: Any, args: Any, kwargs: Any, output: Any, start: float, dropouts: int) -> Call | None:
        """Make a `Call` of an outermost module call that returned. None once there are MAX_MODELS models."""
        torch, progress, clock = self._torch, self._progress, self._clock
        latest = self.latest
        model = latest.model if latest is not None and latest.model.module() is module else self._models.get(module)
        if model is None:
            if self._numbers >= MAX_MODELS:
                return None
            model = self._models[module] = Model(torch, self._numbers, module)
            self._modules.append(model.module)
            self._numbers += 1
            self._describe(model, module)
        mode = GRAD if torch.is_grad_enabled() else INFERENCE if torch.is_inference_mode_enabled() else NO_GRAD
        call = Call(model, start, clock.called_at - clock.zero, progress.steps, mode)
        if dropouts:
            call.dropouts = dropouts
        given: Any = args[0] if args else None
        searched = type(given) is not torch.Tensor or not given.dim()  # rare, and slower
        if searched:
            given = first_tensor(torch, args, kwargs)
        call.batch = batch = self._batches.used_by(given)
        if searched:
            call.batch_size = samples_in_sequence(torch, args, kwargs, batch is not None and batch.one_each)
        if given is not None and call.batch_size is None:
            call.batch_size = int(given.shape[0]) if given.dim() else 1
            if batch is not None and batch.positions == call.batch_size and given.dim() > 1:
                call.batch_size = int(given.shape[1])
        if mode == GRAD and any(carries_graph(torch, one) for one in args):
            call.carries_on = True
        call.number, call.loader = progress.forwards, progress.loader
        call.in_train = model.in_train(module)
        if mode == GRAD:
            node = output.grad_fn if self._habit.holds(call) and type(output) is torch.Tensor else None
            if node is None:
                self.watch(call, output)
            else:
                node.metadata["tracelyze"] = _Watch(call, self)
                self._habit.assume(call)
                call.hooked = call.assumed = True
        self.latest = call
        return call

    def usual_model(self) -> Model | None:
        """The model whose one call a step every backward runs through; None if there is none, or a call is open."""
        return None if self.unsettled else self._habit.model()

    @property
    def has_usual_model(self) -> bool:
        """Whether the latest backwards each ran through one call of the same model, and nothing else was called."""
        return self._habit.goes_on

    def check_next(self) -> None:
        """Watch the next call, because calls before it were skipped: does a backward still run through it?"""
        self._habit.to_check = True

    def check_all(self) -> None:
        """Watch every call until there is a habit again, because something has changed."""
        self._habit.forget()

    def replay(self, batch_size: int, graph: Callable[[], Any], batch: Batch | None) -> Call:
        """A call of the usual model that was skipped (recording/fast_path), as the one before it was."""
        before = self._habit.running
        assert before is not None
        now = self._clock.now()
        call = self.latest = Call(before.model, now, now, self._progress.steps, GRAD)
        call.graph, call.batch = graph, batch
        call.batch_size, call.loader, call.autocast = batch_size, self._progress.loader, before.autocast
        call.dropouts, call.statistics, call.sensitive = before.dropouts, before.statistics, before.sensitive
        call.in_train = call.hooked = call.assumed = call.replayed = True
        self._habit.holds(call)
        self._habit.assume(call)
        return call

    def recomputation(self) -> Recomputation | bool:
        """What to ask about the modules that a backward calls; False if no call may be a checkpointed one."""
        if self.unsettled and any(call.mode != GRAD for call in self._latest()):
            return self._recomputation
        return False

    def _latest(self) -> list[Call]:
        """The latest calls that are not settled. Listed in one operation: an OS signal handler may call models, too."""
        return list(itertools.islice(reversed(self.unsettled), LATEST))

    def recomputed(self, module: Any) -> None:
        """A backward called this module: mark the latest call of it without autograd as one that trained."""
        for call in self._latest():
            if call.mode != GRAD and not call.trained and call.model.module() is module:
                call.trained = True
                self.reached.append(call)
                return

    def await_outcome(self, call: Call) -> None:
        """Queue a call until it is known whether it trained. Calls are settled in order."""
        if len(self.unsettled) >= MAX_OPEN_CALLS:
            self.unsettled.popleft()
        self.unsettled.append(call)

    def watch(self, call: Call, output: Any) -> None:
        """Notice when a backward runs through the output of a call, and when the graph behind it is freed."""
        for tensor in (output,) if isinstance(output, self._torch.Tensor) else tensors_of(self._torch, output):
            node = tensor.grad_fn
            if node is not None:
                node.register_prehook(_Watch(call, self).reached)
                call.hooked = True

    def backward_begins(self) -> None:
        """Decide about calls that nothing watched, now that a backward follows them.

        A call that was assumed to train did. So did one whose output has no node to watch. A call after which another
        one ended the habit was an evaluation if its graph is gone, and trained otherwise.
        """
        habit = self._habit
        assumed = habit.backward_begins(self.reached)
        self.reached = [] if assumed is None else [assumed]
        broken, habit.broken = habit.broken, None
        if broken is not None and broken.graph_is_gone():  # It was the first call of an evaluation.
            broken.dead = True
            if broken not in self.unsettled:
                self.unsettled.appendleft(broken)
        elif broken is not None:  # The program makes two calls a step now, most likely.
            broken.trained = True
            self.reached.append(broken)
        if assumed is not None:
            assumed.trained = True
        elif self.latest is not None and self.latest.mode == GRAD and not self.latest.hooked:
            self.latest.trained = True
            self.reached.append(self.latest)

    def module(self, number: int) -> Any:
        """The module of this number; None if it is gone."""
        return self._modules[number]()

    def settle(self, final: bool = False) -> Iterator[tuple[Call, bool]]:
        """Take the calls from the queue, and whether each trained, up to the first of which that is not known yet."""
        left = self._habit.assumed
        if final and left is not None and left not in self.unsettled:
            self.unsettled.append(left)  # no backward followed it
        while self.unsettled:
            call = self.unsettled[0]
            old = call.step + PATIENCE_STEPS < self._progress.steps
            if not call.trained and not (final or call.mode != GRAD or call.dead or old):
                return
            self.unsettled.popleft()
            yield call, call.trained

    def modules(self) -> list[tuple[int, Any]]:
        """The outermost modules that were called and still live, with their numbers."""
        pairs = [(model.number, model.module()) for model in list(self._models.values())]
        return [(number, module) for number, module in pairs if module is not None]

    def parameter_name(self, parameter: Any) -> str | None:
        """The name of a parameter in the model that was called; None if no called module holds it."""
        for model in list(self._models.values()):
            module = model.module()
            for name, candidate in module.named_parameters() if module is not None else ():
                if candidate is parameter:
                    return unwrapped(str(name))
        return None

    def _describe(self, model: Model, module: Any) -> None:
        parameters = list(module.parameters())
        self._emit(
            "models",
            {
                "model": model.number,
                "name": model.name,
                "parallel": _parallel(module),
                "called_as": caller.name_of_called(),
                "parameters": len(parameters),
                "elements": sum(p.numel() for p in parameters),
                "sensitive": mode_sensitivity.kinds([ref() for ref in model.sensitive]) or None,
                "momentum": mode_sensitivity.momentum(ref() for ref in model.sensitive),
                "begin_symbol": symbol(module, "bos_token_id"),
                "end_symbol": symbol(module, "eos_token_id"),
            },
        )


def _parallel(module: Any) -> str | None:
    """The class of torch's that runs a module on several devices, be it by way of a class of the script's own."""
    kinds = (kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.parallel."))
    return next(iter(kinds), None)
