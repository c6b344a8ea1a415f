"""Which signals listen to which event of the training, and dispatching events to them.

A signal that raises is switched off for the rest of the run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tracelyze.collectors.cadence.budget import TIMED_EVERY, TIMED_FIRST, Meter
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.signals.context import PausableSignal
from tracelyze.collectors.signals.events import EVENTS, STEP_EVENTS
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

SWITCHED = 16  # steps after those of an optimizer that is new, or was not met for long, in which no signal may pause


class _Listener:
    """A signal that listens to an event, and the function to call at that event."""

    __slots__ = ("call", "method", "pausable", "signal")

    def __init__(self, signal: Signal, event: str) -> None:
        self.signal = signal
        self.method: Callable[..., None] = getattr(signal, event)
        timed = functools.partial(signal.meter.timed_if_sampling, self.method)
        self.call = timed if signal.sampled else self.method
        self.pausable = event in signal.pausable

    def listens(self) -> bool:
        return not (self.pausable and self.signal.paused)


class FastColumns:
    """Where the columns of a skipped step's row come from (fast_path).

    `copied`: columns that get the value of the step before. `read`: columns whose values the functions `readers` return
    at the end of the step. `guards`: copied columns with the function that reads them as a backward begins.
    """

    def __init__(self, signals: Sequence[Signal]) -> None:
        active = [one for one in signals if one.active or "after_step" not in one.inactive]
        reading = [one for one in active if one.fast_columns or one.reads_skipped_steps]
        self.copied = ("optimizer", *[column for one in signals for column in one.copied_columns])
        self.read = tuple([column for one in reading for column in one.fast_columns])
        self.readers: list[Callable[[Tracked, float], tuple[Any, ...]]] = [one.fast_values for one in reading]
        self.guards = [(one.guard_columns, one.guard_values) for one in signals if one.guard_columns]


class FullEvents:
    """What says when a signal needs all events of a step next: those methods that signals have of their own."""

    def __init__(self, signals: Sequence[Signal]) -> None:
        kinds = [(one, type(one)) for one in signals]
        own = [one.next_full_step for one, kind in kinds if kind.next_full_step is not Signal.next_full_step]
        self.steps: list[Callable[[], float]] = own
        own = [
            one.next_full_backward for one, kind in kinds if kind.next_full_backward is not Signal.next_full_backward
        ]
        self.backwards: list[Callable[[], float]] = own
        own = [one.next_full_call for one, kind in kinds if kind.next_full_call is not Signal.next_full_call]
        self.calls: list[Callable[[], float]] = own


class Dispatcher:
    """The signals of one recording, by the events that they have methods for.

    `changed` is called when a signal begins or stops to listen to an event, `failed` when a signal has raised.
    """

    def __init__(
        self, progress: Progress, changed: Callable[[], None], failed: Callable[[Signal, Exception], None]
    ) -> None:
        self.fast_columns = FastColumns([])
        self.resumes_at: float = math.inf  # steps of the process after which the first of the paused signals resumes
        self._progress = progress
        self._changed = changed
        self._failed = failed
        self._signals: list[Signal] = []
        self._listeners: dict[str, tuple[_Listener, ...]] = dict.fromkeys(EVENTS, ())
        # The functions to call at an event, without those of paused signals; None: to be made of `_listeners` again.
        self._calls: dict[str, tuple[Callable[..., None], ...] | None] = dict.fromkeys(EVENTS, ())
        self._until_timed = 1  # events until the next one that is timed
        self._timed = 0
        self._paused: list[PausableSignal] = []
        self._no_pause_before = 0  # number of steps of the process before which no signal may pause
        self._skippable: bool | None = None  # what `steps_may_be_skipped` answers; None: to be determined again
        self._needing: list[_Listener] = []  # those of signals that need every step
        self._full = FullEvents([])

    def listen(self, signals: Sequence[Signal]) -> None:
        """Dispatch events to these signals from now on, in this order."""
        self._signals = list(signals)
        self.listeners_changed()

    def listeners_changed(self) -> None:
        """Determine again which signals listen to which events: one has failed, or was activated."""
        for event in EVENTS:
            active = [one for one in self._signals if one.active or event not in one.inactive]
            self._listeners[event] = tuple([_Listener(one, event) for one in active if hasattr(one, event)])
            self._calls[event] = None
        self.fast_columns = FastColumns(self._signals)
        self._full = FullEvents(self._signals)
        of_steps = [one for event in STEP_EVENTS for one in self._listeners[event]]
        self._needing = [one for one in of_steps if one.signal.needs_every_step]
        self._skippable = None
        self._changed()

    def nobody_listens(self, event: str) -> bool:
        """Whether all listeners of this event are known to be paused: it need not be dispatched."""
        return self._calls[event] == ()

    def steps_may_be_skipped(self) -> bool:
        """Whether no signal that needs every step is listening now."""
        if self._skippable is None:
            self._skippable = not self.in_the_way()
        return self._skippable

    def in_the_way(self) -> set[str]:
        """The names of the signals that are listening to steps now and need every one."""
        return {one.signal.name for one in self._needing if one.listens()}

    def next_full_step(self) -> float:
        """After how many steps of the process the next one must not be skipped."""
        return min([self.resumes_at, *[limit() for limit in self._full.steps]])

    def next_full_backward(self) -> float:
        """The number of the next backward whose step must not be skipped."""
        return min([limit() for limit in self._full.backwards], default=math.inf)

    def next_full_call(self) -> float:
        """The number of the next outermost module call whose step must not be skipped."""
        return min([limit() for limit in self._full.calls], default=math.inf)

    def every_second(self) -> list[tuple[Signal, Callable[..., None]]]:
        """Signals that sample the process once a second, with the method to call, which is always timed."""
        listening = [(one, getattr(one, "every_second", None)) for one in self._signals]
        return [(signal, signal.meter.always_timed(method)) for signal, method in listening if method is not None]

    def dispatch(self, event: str, *args: Any) -> None:
        """Call every signal that listens to this event.

        The time of sampling signals is always measured, that of the others at one event in TIMED_EVERY.
        """
        self._until_timed -= 1
        if not self._until_timed:
            self._dispatch_timed(event, args)
            return
        calls = self._calls[event]
        if calls is None:
            listening = [one.call for one in self._listeners[event] if not (one.pausable and one.signal.paused)]
            calls = self._calls[event] = tuple(listening)
        for call in calls:
            try:
                call(*args)
            except Exception as error:
                self.switch_off(_signal_of(call), error)

    def _dispatch_timed(self, event: str, args: tuple[Any, ...]) -> None:
        """Dispatch an event and time each signal; the time stands for the events that were not timed as well."""
        self._timed += 1
        self._until_timed = weight = 1 if self._timed < TIMED_FIRST else TIMED_EVERY
        for one in self._listeners[event]:
            if one.listens():
                try:
                    one.signal.meter.timed(one.method, args, weight)
                except Exception as error:
                    self.switch_off(one.signal, error)

    def switch_off(self, signal: Signal, error: Exception) -> None:
        """A signal has raised: dispatch nothing to it any more."""
        if raised_by_a_signal_handler(error):
            raise error
        self._signals = [one for one in self._signals if one is not signal]
        self.listeners_changed()
        self._failed(signal, error)

    # Pauses

    def pause(self, signal: PausableSignal, until: float) -> None:
        """Dispatch no event in `signal.pausable` to it until the process has made `until` steps."""
        if self._progress.steps < self._no_pause_before:
            return
        if not signal.paused:
            self._paused.append(signal)
            self._set_paused(signal, True)
        signal.resumes_at = until
        self.resumes_at = min(self.resumes_at, until)

    def resume(self, meter: Meter) -> None:
        """Dispatch everything to the signal of this meter again."""
        self._resume([one for one in self._paused if one.meter is meter])

    def resume_all(self) -> None:
        """Resume all signals, because something is out of the ordinary."""
        self._resume(self._paused)

    def raise_alert(self) -> None:
        """Something is out of the ordinary: all signals sample this step."""
        self._progress.alert = True
        self.resume_all()

    def resume_listeners(self, event: str) -> None:
        """Resume the signals that wait for this event, which is about to happen. Those that paused for a number of
        steps, between two samples, do not."""
        self._resume([one for one in self._paused if event in one.pausable and one.resumes_at == math.inf])

    def resume_until(self, steps: float) -> None:
        """Resume the signals whose pause ends by the time that the process has made `steps` steps."""
        self._resume([one for one in self._paused if one.resumes_at <= steps])

    def _resume(self, signals: list[PausableSignal]) -> None:
        self._paused = [one for one in self._paused if one not in signals]
        self.resumes_at = min([one.resumes_at for one in self._paused], default=math.inf)
        for signal in signals:
            self._set_paused(signal, False)

    def optimizer_changed(self) -> None:
        """An optimizer steps for the first time, or after long: no signal may pause for the next SWITCHED steps."""
        self._no_pause_before = self._progress.steps + SWITCHED
        self.resume_all()

    def _set_paused(self, signal: PausableSignal, paused: bool) -> None:
        signal.paused = paused
        for event in signal.pausable:
            self._calls[event] = None
        self._skippable = None
        self._changed()


def _signal_of(call: Any) -> Signal:
    """The signal whose method a listener calls, directly or through the signal's meter."""
    method = call.args[0] if isinstance(call, functools.partial) else call
    signal: Signal = method.__self__
    return signal
