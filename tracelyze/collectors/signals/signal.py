"""What a signal is: a class whose methods are named after the moments of a training that it wants to see.

forward(call, args, kwargs)       an outermost module call returned (calls.Call), with what it was given
settled(call, trained)            it is known whether a backward ran through that call's output; in order
loss(value)                       a loss function returned (a scalar tensor)
loss_call(function, args, kwargs, value)      a loss function of torch.nn.functional returned value
state_taken(module, state)        a module handed out its weights by name
state_loading(module, given)      it is about to take in those of `given`
state_loaded(module, given, result)      and has: what was missing and unexpected
scheduled(scheduler, inner)       a learning-rate scheduler stepped; inner: another scheduler made it
before_backward(roots)            torch.autograd.backward was called with these tensors
after_backward(roots)             and returned
clip(max_norm, total_norm)        gradients were clipped; total_norm is the tensor that the clip returned, or None
scale(original, scaled)           GradScaler.scale returned `scaled` for `original`
unscale(scaler, optimizer)        GradScaler.unscale_ returned
scaler_step(scaler)               GradScaler.step was called
loader_made(loader)               a DataLoader was constructed
iterate(loader, iterator)         iter(DataLoader) returned an iterator
waiting(iterator)                 the script asks it for a batch
batch(iterator, seconds, batch)   it handed out a batch after `seconds` of waiting
exhausted(iterator)               it had no more
turned(iterator, seconds)         making it, or finding its end, took that long: workers start, workers stop
before_step(tracked)              an optimizer's step was called
first_step(tracked)               and returned, for the first time; after_step follows
after_step(tracked, row)          and returned (or GradScaler skipped it): fill the row
opened()                          the process trains: it gets a folder, and its threads are about to start
every_second(row)                 on a thread of ours: fill a row of the table samples, or write rows of your own
logged(unnamed, values, batch, phase, step)   `tracelyze.log` was called, on any thread
evaluation_begins(purpose)        a framework's callback says that an evaluation begins: validation, test, ...
evaluation_ends()                 and that it is over
finished()                        the program ends
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from tracelyze.collectors.program.optimizers import Tracked
    from tracelyze.collectors.recording.recorder import Recorder

MOMENTS = (
    "forward", "settled", "loss", "loss_call", "before_backward", "after_backward", "clip", "scale",
    "unscale", "scaler_step", "loader_made", "iterate", "turned", "waiting", "batch", "exhausted", "before_step",
    "first_step", "after_step", "opened", "every_second", "logged", "scheduled", "state_taken",
    "state_loading", "state_loaded", "evaluation_begins", "evaluation_ends", "finished",
)  # fmt: skip


class Unavailable(Exception):  # noqa: N818  # no error
    """Raised by a signal's constructor: why it has nothing to record here."""


class Watch(Protocol):
    """Sees the modules within one outermost call, if a signal has put it into `recorder.watch`. It never raises."""

    def begins(self, root: Any) -> Watch | None:
        """`root` is about to be called: itself, or None if this call is not to be watched."""
        ...

    def returned(self, module: Any, output: Any) -> None:
        """A module within it returned."""
        ...

    def ends(self, root: Any, output: Any) -> None:
        """`root` itself returned."""
        ...


class Signal:
    """Base of all signals. `columns` are the columns that it fills ("steps.loss"); a test holds them to the schema.

    A method may raise: the recorder then switches this signal off for the rest of the run and writes down why.
    No method may wait for a device, draw a random number, or keep a tensor, module or optimizer alive.

    A dear signal is `sampled`: it asks `due(tracked)` (or `self.meter.due(count)`, if it does not go by steps) before
    it looks, and is then measured and turned down within the run's budget. `every` is how many steps lie between two
    looks where the budget allows it, `young` the first steps that are all looked at, `slowest` the most steps between
    two looks however dear it is (None: no limit).
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    about: ClassVar[str] = ""  # what it records, for the documentation
    needs: ClassVar[tuple[str, ...]] = ()  # private names of torch (private_names.py) that it cannot do without
    may_hang: ClassVar[bool] = False  # `every_second` calls a driver that may not return: it gets a thread of its own
    cost: ClassVar[str] = ""  # what it costs, as measured on a CPU, for the documentation
    dormant: ClassVar[tuple[str, ...]] = ()  # moments that it has no use for until it has called `wake`
    resting: ClassVar[tuple[str, ...]] = ()  # moments that it has no use for after it has called `rest`
    repeats: ClassVar[tuple[str, ...] | None] = None  # it can do without steps that are like those before them: their
    checked: ClassVar[tuple[str, ...]] = ()  # of `repeats`: those that `at_backward` can tell
    gauges: tuple[str, ...] = ()  # rows take over the columns `repeats` and get what `gauge` returns
    default_on: ClassVar[bool] = True  # else recorded only if asked for: collect --signal NAME=on
    sampled: ClassVar[bool] = False
    every: ClassVar[int] = 1
    young: ClassVar[int] = 0
    slowest: ClassVar[int | None] = None

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.torch: Any = recorder.torch
        self.meter = recorder.budget.meter(type(self))
        self.awake = False

    def wake(self) -> None:
        """From now on, hear of the moments in `dormant` too: the program does what the signal is about."""
        if not self.awake:
            self.awake = True
            self.recorder.moments.gather()

    def rest(self, until: float = math.inf) -> None:
        """Do not hear of the moments in `resting` until so many steps of the process have ended.

        It also ends when something is out of the ordinary, when the budget changes the signal's cadence, while
        several optimizers take turns, and with `rise`.
        """
        if until > self.recorder.steps:
            self.recorder.moments.rest(self, until)

    def rise(self) -> None:
        """Hear of everything again, now."""
        if self.meter.resting:
            self.recorder.moments.rise(self.meter)

    def gauge(self, tracked: Tracked, time: float) -> tuple[Any, ...]:
        """Values of the columns `gauges`, without their table, at the end of a step that nobody was told of
        (fast_path.py): read quickly."""
        return ()

    def at_backward(self) -> tuple[Any, ...]:
        """Values of the columns `checked`, as a backward begins: where one has changed, everybody is told."""
        return ()

    def hears_again(self) -> float:
        """How many steps of the process may end before the signal has to hear of one again, resting or not."""
        return math.inf

    def due(self, tracked: Tracked) -> bool:
        """Whether a sampled signal is to look at the step that this optimizer is making; ask once per step."""
        return self.meter.due(tracked.count, self.recorder.alert)
