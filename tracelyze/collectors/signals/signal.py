"""What a signal is: a class whose methods are named after the events (signals/events.py) that it listens to."""

from __future__ import annotations

import difflib
import math
from typing import Any, ClassVar

from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.events import EVENTS, STEP_EVENTS

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

    A public method is one of `Events` or overrides one of this class; the names of all others begin with an underscore.
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
