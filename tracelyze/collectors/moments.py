"""Which signals want to hear of which moment of the training, and telling them.

A signal that raises is switched off for the rest of the run, with its traceback in the ledger and the events table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracelyze.collectors import private_names
from tracelyze.collectors.budget import TIMED_EVERY, TIMED_FIRST, Meter
from tracelyze.collectors.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.signals import SIGNALS
from tracelyze.collectors.signals.signal import MOMENTS, Signal, Unavailable

if TYPE_CHECKING:
    from tracelyze.collectors.recorder import Recorder

Listener = tuple[Callable[..., None], Meter, bool]  # a signal's method, its meter, and whether it rests with that


class Moments:
    """The signals of one recorder, by the moments that they have methods for."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._signals: list[Signal] = []
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._until_timed = 1
        self._timed = 0
        self._resting: list[Meter] = []
        self.wakes: float = math.inf  # when so many steps have ended, the first of those rises
        for kind in SIGNALS:
            self._switch_on(kind)
        self.gather()

    def gather(self) -> None:
        """Find out anew who wants to hear of what: a signal has failed, or woken up."""
        for moment in MOMENTS:
            awake = [one for one in self._signals if one.awake or moment not in one.dormant]
            wanting = [one for one in awake if hasattr(one, moment)]
            self._listeners[moment] = tuple(
                [(getattr(one, moment), one.meter, moment in one.resting) for one in wanting]
            )

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
        for method, meter, rests in self._listeners[moment]:
            if rests and meter.resting:
                continue
            try:
                if meter.looking:
                    meter.timed(method, args)
                else:
                    method(*args)
                    if meter.looking:
                        meter.has_begun()
            except Exception as error:
                self.fail(method.__self__, error)  # type: ignore[attr-defined]  # bound to its signal

    def rest(self, meter: Meter, until: float) -> None:
        """A signal has no use for some moments until so many steps have ended."""
        if not meter.resting and meter not in self._resting:
            self._resting.append(meter)
        meter.resting, meter.wakes = True, until
        self.wakes = min(self.wakes, until)

    def wake(self, steps: float = math.inf) -> None:
        """Let those hear of everything again that were to rest until so many steps have ended; without, all."""
        for meter in self._resting:
            if meter.wakes <= steps:
                meter.resting = False
        self._resting = [meter for meter in self._resting if meter.resting]
        self.wakes = min([meter.wakes for meter in self._resting], default=math.inf)

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
        for method, meter, rests in self._listeners[moment]:
            if rests and meter.resting:
                continue
            try:
                meter.timed(method, args, weight)
            except Exception as error:
                self.fail(method.__self__, error)  # type: ignore[attr-defined]

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
