"""What a signal is: a class whose methods are named after the events of a training that it listens to.

forward(call, args, kwargs)       an outermost module call returned (program/call.py), with what it was given; () and
                                  {} for one that was skipped (see below): `call.given` refers to what is left of it
settled(call, trained)            it is known whether a backward ran through that call's output; in order
passed_over(calls)                calls without autograd, in a row, of a step that was skipped (see below): each is like
                                  one that was settled before
loss(value)                       a loss function returned (a scalar tensor)
loss_call(function, args, kwargs, value)      a loss function of torch.nn.functional returned value
seeded(name)                      a global generator of random numbers was seeded: "python", "numpy"
checkpointed_in_vain(function)    reentrant checkpointing of this function was given no tensor that needs a gradient
filled(tensor)                    a function of torch.nn.init filled it with random numbers
state_taken(module, state)        a module handed out its weights by name
state_loading(module, given)      it is about to take in those of `given`
state_loaded(module, given, result)      and has: what was missing and unexpected
vectors_taken(module)             an embedding was made of vectors that it was given: from_pretrained returned
pretrained(module, missing)       from_pretrained of a library has set the weights of a model, but for these names
file_saved(content, name)         torch.save has written an object into a file of this name
file_loaded(content, name)        torch.load has read one
state_restored(role, owner)       an optimizer, scheduler or scaler took in a state: its load_state_dict returned
scheduled(scheduler, inner, given)
                                  a learning-rate scheduler stepped, given this; inner: another scheduler made it
before_backward(roots)            torch.autograd.backward was called with these tensors: a tuple, () where backward was
                                  called with something else, or was skipped (see below)
after_backward(roots)             and returned
clips_values(parameters)          their gradients are about to be clipped, by value or another norm than L2
clip(max_norm, total_norm)        gradients were clipped; total_norm is the tensor that the clip returned, or None
scale(original, scaled)           GradScaler.scale returned `scaled` for `original`
unscale(scaler, optimizer)        GradScaler.unscale_ returned
scaler_step(scaler)               GradScaler.step was called
loader_made(loader)               a DataLoader was constructed
iterate(loader, iterator)         iter(DataLoader) returned an iterator
fetching(loader, iterator, page)  after that: where its workers leave their notes (program/fetches.py), None without
waiting(iterator)                 the script asks it for a batch
batch(iterator, seconds, batch)   it handed out a batch after `seconds` of waiting
exhausted(iterator)               it had no more
turned(iterator, seconds)         making it, or finding its end, took that long: workers start, workers stop
before_first_step(tracked)        an optimizer's step was called for the first time; before_step follows
before_step(tracked)              an optimizer's step was called
first_step(tracked)               and returned, for the first time; after_step follows
after_step(tracked, row)          and returned (or GradScaler skipped it): fill the row
opened()                          the process trains: it gets a folder, and its threads are about to start
every_second(row)                 on a thread of ours: fill a row of the table samples, or write rows of your own
logged(unnamed, values, batch, phase, step)   `tracelyze.log` was called, on any thread
reported(logger, values)          the program handed numbers by name to a logger (hooks/loggers.py)
evaluation_begins(purpose)        a framework's callback says that an evaluation begins: validation, test, ...
evaluation_ends()                 and that it is over
finished()                        the program ends

The steps of a loop that has settled are skipped (recording/fast_path): no signal is called. Where such a step turns out
to be unlike those before it, the events that were skipped of it are dispatched after all, late. What the program gave
to a call or a backward is gone by then; the loss of that backward is `program.backwards.running.value`, a float.
"""

from __future__ import annotations

import difflib
import math
from typing import Any, ClassVar

from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext

EVENTS = (
    "forward", "settled", "passed_over", "loss", "loss_call", "before_backward", "after_backward", "clips_values",
    "clip", "scale", "unscale", "scaler_step", "loader_made", "iterate", "fetching", "turned", "waiting", "batch",
    "exhausted", "before_first_step", "before_step", "first_step", "after_step", "opened", "every_second", "logged",
    "scheduled", "seeded", "filled", "state_taken", "state_loading", "state_loaded", "state_restored",
    "vectors_taken", "pretrained", "file_saved", "file_loaded", "reported", "evaluation_begins", "evaluation_ends",
    "checkpointed_in_vain", "finished",
)  # fmt: skip
STEP_EVENTS = ("forward", "settled", "before_backward", "after_backward", "before_step", "after_step")
CHOICES = ("copied_columns", "fast_columns", "needs_every_step")


def columns_of(table: str, *names: str) -> tuple[str, ...]:
    """Columns of a table as a signal declares them. `names`: separated by blanks."""
    return tuple([f"{table}.{name}" for several in names for name in several.split()])


class Unavailable(Exception):  # noqa: N818  # no error
    """Raised by a signal's constructor: why it has nothing to record here."""


class Signal:
    """Base of all signals. `columns` are the columns that it fills ("steps.loss"); a test holds them to the schema.

    A method may raise: the signal is then switched off for the rest of the run, and why is written down.
    No method may wait for a device, draw a random number, or keep a tensor, module or optimizer alive.

    An expensive signal is `sampled`: it asks `due(tracked)` (or `self.meter.due(count)`, if it does not go by steps)
    before it samples, and is then measured and turned down within the run's budget. `every` is how many steps lie
    between two samples where the budget allows it, `first_steps` how many steps are all sampled at first, `max_stride`
    the most steps between two samples however expensive they are (None: no limit).

    Most steps of a loop that has settled are skipped (recording/fast_path): their events are not dispatched. So a
    signal that listens to an event of steps (STEP_EVENTS) has to declare what becomes of its columns then, or it cannot
    even be defined:

    copied_columns      get the value of the step before, which holds because the step was like it; () for none
    fast_columns        are read by `fast_values` at the end of the step
    needs_every_step    no step may be skipped while the signal listens: for one that samples, and is paused or inactive
                        nearly always (a test names a signal that would be in the way all the time)

    With `reads_skipped_steps`, `fast_values` is called at the end of such steps though it has no column to fill.
    `guard_columns` are those of the copied columns that `guard_values` reads as a backward begins: where one has
    changed, the step is not skipped.

    A public method is one of EVENTS or overrides one of this class; the names of all others begin with an underscore.
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    about: ClassVar[str] = ""  # what it records, for the documentation
    cost: ClassVar[str] = ""  # what it costs, as measured on a CPU, for the documentation
    needs: ClassVar[tuple[str, ...]] = ()  # private names of torch (private_names.py) that it cannot do without
    may_hang: ClassVar[bool] = False  # `every_second` calls a driver that may not return, so it gets its own thread.
    default_on: ClassVar[bool] = True  # If False, it is recorded only if asked for: collect --signal NAME=on.
    option: ClassVar[str] = ""  # the option of collect that switches it on, where it has one of its own
    inactive: ClassVar[tuple[str, ...]] = ()  # events that are not dispatched to it before it calls `activate`
    pausable: ClassVar[tuple[str, ...]] = ()  # events that are not dispatched to it after it has called `pause`
    needs_every_step: ClassVar[bool] = False
    copied_columns: ClassVar[tuple[str, ...]] = ()
    guard_columns: ClassVar[tuple[str, ...]] = ()
    reads_skipped_steps: ClassVar[bool] = False
    fast_columns: tuple[str, ...] = ()  # A signal may set it on itself when it has values for them.
    sampled: ClassVar[bool] = False
    every: ClassVar[int] = 1
    first_steps: ClassVar[int] = 0
    max_stride: ClassVar[int | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        public = {name for name, value in vars(cls).items() if callable(value) and not name.startswith("_")}
        for name in sorted(public - set(EVENTS) - set(vars(Signal))):
            near = difflib.get_close_matches(name, [*EVENTS, *vars(Signal)], 1, cutoff=0.75)
            meant = f"did you mean {near[0]}?" if near else "begin its name with an underscore"
            raise TypeError(f"{cls.__name__}.{name} is no event of a training: {meant}")
        events = [event for event in STEP_EVENTS if hasattr(cls, event)]
        if events and not _declared(cls).intersection(CHOICES):
            raise TypeError(
                f"{cls.__name__} listens to {', '.join(events)}: declare what becomes of its columns at steps that are "
                f"skipped, with {', '.join(CHOICES[:-1])} or {CHOICES[-1]} (signals/signal.py)"
            )

    def __init__(self, context: SignalContext) -> None:
        self.context = context
        self.torch: Any = context.torch
        self.progress = context.progress
        self.program = context.program
        self.meter = context.meter(type(self))
        self.active = False
        self.paused = False  # whether no event in `pausable` is dispatched to it at present
        self.resumes_at: float = 0  # number of steps of the process after which a pause ends

    def activate(self) -> None:
        """From now on, listen to the events in `inactive` too: the program does what the signal is about."""
        if not self.active:
            self.active = True
            self.context.listeners_changed()

    def pause(self, until: float = math.inf) -> None:
        """Do not listen to the events in `pausable` until so many steps of the process have ended.

        The pause also ends when something is out of the ordinary, when the budget changes the signal's cadence, when
        an optimizer steps that is new, and with `resume`. Optimizers that take turns share it.
        """
        if until > self.progress.steps:
            self.context.pause(self, until)

    def steps_until_due(self, at_end: bool = False) -> int:
        """For a signal that asks `due`: so many steps end before the one that it samples, if turns stay as they are.

        `at_end`: it asks when a step has ended, and not as it begins.
        """
        active, steps, due = self.program.optimizers.active(), self.progress.steps, self.meter.steps_until_due
        return min([one.steps_before(due(one.count) - at_end, steps) for one in active], default=0)

    def resume(self) -> None:
        """Listen to everything again, now."""
        if self.paused:
            self.context.resume(self.meter)

    def fast_values(self, tracked: Tracked, time: float) -> tuple[Any, ...]:
        """Values of `fast_columns`, without their table, at the end of a step that was skipped: read quickly."""
        return ()

    def guard_values(self) -> tuple[Any, ...]:
        """Values of `guard_columns` as a backward begins."""
        return ()

    def next_full_step(self) -> float:
        """After how many steps of the process the next one must not be skipped, even if the signal is paused."""
        return math.inf

    def next_full_backward(self) -> float:
        """The number of the process's next backward whose step must not be skipped."""
        return math.inf

    def next_full_call(self) -> float:
        """The number of the process's next outermost module call whose step must not be skipped."""
        return math.inf

    def due(self, tracked: Tracked) -> bool:
        """Whether a sampled signal is to sample the step that this optimizer is making; ask once per step."""
        return self.meter.due(tracked.count, self.progress.alert)


def _declared(kind: type[Signal]) -> set[str]:
    """What a class and those that it is derived from declare, without Signal itself."""
    return {name for one in kind.__mro__ if one not in (Signal, object) for name in vars(one)}
