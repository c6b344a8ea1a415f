"""Which signals want to hear of which moment of the training, and telling them.

A signal that raises is switched off for the rest of the run, with its traceback in the ledger and the events table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracelyze.collectors.cadence.budget import TIMED_EVERY, TIMED_FIRST, Meter
from tracelyze.collectors.internals import private_names
from tracelyze.collectors.signals import SIGNALS
from tracelyze.collectors.signals.signal import MOMENTS, Signal, Unavailable
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

if TYPE_CHECKING:
    from tracelyze.collectors.program.optimizers import Tracked
    from tracelyze.collectors.recording.recorder import Recorder

OF_STEPS = ("forward", "settled", "before_backward", "after_backward", "before_step", "after_step")
SWITCHED = 16  # steps of one and the same optimizer after which signals may rest


class _Listener:
    """A signal that wants a moment, and what to call then."""

    __slots__ = ("call", "method", "rests", "signal")

    def __init__(self, signal: Signal, moment: str) -> None:
        self.signal = signal
        self.method: Callable[..., None] = getattr(signal, moment)
        self.call = functools.partial(signal.meter.told, self.method) if signal.sampled else self.method
        self.rests = moment in signal.resting

    def hears(self) -> bool:
        return not (self.rests and self.signal.meter.resting)


class Readings:
    """What a step gets that is passed (fast_path.py): columns that stay as they were at the step before, columns
    that are read, and by which methods; and what has to be as it was when a backward begins."""

    def __init__(self, signals: list[Signal]) -> None:
        read = [one for one in signals if one.gauges and (one.awake or "after_step" not in one.dormant)]
        self.repeated = ("optimizer", *[column for one in signals for column in one.repeats or ()])
        self.gauged = tuple([column for one in read for column in one.gauges])
        self.gauges: list[Callable[[Tracked, float], tuple[Any, ...]]] = [one.gauge for one in read]
        self.at_backward = [(one.checked, one.at_backward) for one in signals if one.checked]


class Moments:
    """The signals of one recorder, by the moments that they have methods for."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._signals: list[Signal] = []
        self._listeners: dict[str, tuple[_Listener, ...]] = {}  # all that want a moment, and
        self._hearing: dict[str, tuple[Callable[..., None], ...] | None] = {}  # what to call; None: find out who rests
        self._until_timed = 1
        self._timed = 0
        self._resting: list[Signal] = []
        self._restless_until = 0
        self.wakes: float = math.inf  # when so many steps have ended, the first of those rises
        self._dispensable: bool | None = None  # None: find out
        self.readings = Readings([])
        self._limits: list[Callable[[], float]] = []
        for kind in SIGNALS:
            self._switch_on(kind)
        self.gather()

    def gather(self) -> None:
        """Find out anew who wants to hear of what: a signal has failed, or woken up."""
        for moment in MOMENTS:
            awake = [one for one in self._signals if one.awake or moment not in one.dormant]
            self._listeners[moment] = tuple([_Listener(one, moment) for one in awake if hasattr(one, moment)])
            self._hearing[moment] = None
        self._expect_anything()
        self.readings = Readings(self._signals)
        self._limits = [one.hears_again for one in self._signals if type(one).hears_again is not Signal.hears_again]

    def nobody_hears(self, moment: str) -> bool:
        """Whether all that want this moment are known to rest: it need not be told."""
        return self._hearing[moment] == ()

    def can_do_without(self) -> bool:
        """Whether all that do not rest can do without the moments of a step that is like the one before."""
        if self._dispensable is None:
            hear = [one.signal for moment in OF_STEPS for one in self._listeners[moment] if one.hears()]
            self._dispensable = all(signal.repeats is not None for signal in hear)
        return self._dispensable

    def until(self) -> float:
        """How many steps of the process will have ended when somebody wants to hear of the next one, whatever it is."""
        return min([self.wakes, *[limit() for limit in self._limits]])

    def _expect_anything(self) -> None:
        self._dispensable = None
        self._recorder.steady.interrupt()

    def samplers(self) -> list[tuple[Signal, Callable[..., None]]]:
        """Signals that look at the process once a second, with the method to call, which is always timed."""
        listening = [(one, getattr(one, "every_second", None)) for one in self._signals]
        return [(signal, signal.meter.watched(look)) for signal, look in listening if look is not None]

    def tell(self, moment: str, *args: Any) -> None:
        """Tell every signal that wants this moment. Timed are those that take a look, and one moment in so many."""
        self._until_timed -= 1
        if not self._until_timed:
            self._tell_timed(moment, args)
            return
        hearing = self._hearing[moment]
        if hearing is None:
            hearing = self._hearing[moment] = tuple([one.call for one in self._listeners[moment] if one.hears()])
        for call in hearing:
            try:
                call(*args)
            except Exception as error:
                self.fail(_signal_of(call), error)

    def rest(self, signal: Signal, until: float) -> None:
        """A signal has no use for some moments until so many steps have ended."""
        if self._recorder.steps < self._restless_until:
            return
        if not signal.meter.resting:
            self._resting.append(signal)
            self._turn(signal, True)
        signal.meter.wakes = until
        self.wakes = min(self.wakes, until)

    def rise(self, meter: Meter) -> None:
        """The signal of this meter hears of everything again."""
        for signal in self._resting:
            if signal.meter is meter:
                self._resting.remove(signal)
                self._turn(signal, False)
                return

    def wake(self, steps: float = math.inf) -> None:
        """Let those hear of everything again that were to rest until so many steps have ended; without, all."""
        resting, self._resting = self._resting, []
        for signal in resting:
            if signal.meter.wakes <= steps:
                self._turn(signal, False)
            else:
                self._resting.append(signal)
        self.wakes = min([signal.meter.wakes for signal in self._resting], default=math.inf)

    def wake_if_time(self) -> None:
        """A step has ended: wake those that rest until now."""
        if self._recorder.steps >= self.wakes:
            self.wake(self._recorder.steps)

    def another_optimizer(self) -> None:
        """Another optimizer steps than the one before: signals rest only while one and the same does."""
        self._restless_until = self._recorder.steps + SWITCHED
        self.wake()

    def _turn(self, signal: Signal, resting: bool) -> None:
        signal.meter.resting = resting
        for moment in signal.resting:
            self._hearing[moment] = None
        self._expect_anything()

    def fail(self, signal: Signal, error: Exception) -> None:
        """Switch a signal off for good and write down why, with the traceback."""
        if raised_by_a_signal_handler(error):
            raise error
        self._signals = [one for one in self._signals if one is not signal]
        self.gather()
        self._recorder.event("collector-error", signal.name, self._recorder.ledger.failed(signal.name, error))

    def _tell_timed(self, moment: str, args: tuple[Any, ...]) -> None:
        """The same with the time of every signal: it stands for all the moments that are not timed."""
        self._timed += 1
        self._until_timed = weight = 1 if self._timed < TIMED_FIRST else TIMED_EVERY
        for one in self._listeners[moment]:
            if one.hears():
                try:
                    one.signal.meter.timed(one.method, args, weight)
                except Exception as error:
                    self.fail(one.signal, error)

    def _switch_on(self, kind: type[Signal]) -> None:
        recorder = self._recorder
        ledger, options = recorder.ledger, recorder.options
        if kind.name in options.signals_off:
            ledger.off(kind.name, "switched off when the run was started")
            return
        if not kind.default_on and kind.name not in options.signals_on:
            ledger.off(kind.name, f"off unless asked for with --signal {kind.name}=on")
            return
        missing = private_names.lacks(recorder.torch, kind.needs)
        if missing:
            ledger.off(kind.name, missing)
            return
        try:
            signal = kind(recorder)
        except Unavailable as reason:
            ledger.off(kind.name, str(reason))
            return
        except Exception as error:
            recorder.event("collector-error", kind.name, ledger.failed(kind.name, error))
            return
        ledger.on(kind.name)
        self._signals.append(signal)


def _signal_of(call: Any) -> Signal:
    """Whose method is called, directly or by the signal's meter."""
    method = call.args[0] if isinstance(call, functools.partial) else call
    signal: Signal = method.__self__
    return signal
