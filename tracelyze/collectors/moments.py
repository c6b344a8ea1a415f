"""Which signals want to hear of which moment of the training, and telling them.

A signal that raises is switched off for the rest of the run, with its traceback in the ledger and the events table.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tracelyze.collectors.budget import TIMED_EVERY, TIMED_FIRST
from tracelyze.collectors.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.signals import SIGNALS
from tracelyze.collectors.signals.signal import MOMENTS, Signal, Unavailable

if TYPE_CHECKING:
    from tracelyze.collectors.recorder import Recorder

Listener = tuple[Signal, Callable[..., None]]


class Moments:
    """The signals of one recorder, by the moments that they have methods for."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._listeners: dict[str, list[Listener]] = {moment: [] for moment in MOMENTS}
        self._until_timed = 1
        self._timed = 0
        for kind in SIGNALS:
            self._switch_on(kind)

    def listeners(self, moment: str) -> list[Listener]:
        """Signals that want this moment, with the method to call."""
        return self._listeners[moment]

    def tell(self, moment: str, *args: Any) -> None:
        """Tell every signal that wants this moment."""
        self._until_timed -= 1
        if not self._until_timed:
            self._tell_timed(moment, args)
            return
        for signal, method in self._listeners[moment]:
            try:
                method(*args)
            except Exception as error:
                self.fail(signal, error)

    def fail(self, signal: Signal, error: Exception) -> None:
        """Switch a signal off for good and write down why, with the traceback."""
        if raised_by_a_signal_handler(error):
            raise error
        for moment, listeners in self._listeners.items():
            self._listeners[moment] = [listener for listener in listeners if listener[0] is not signal]
        self._recorder.event("collector-error", signal.name, self._recorder.ledger.failed(signal.name, error))

    def _tell_timed(self, moment: str, args: tuple[Any, ...]) -> None:
        """The same for one in so many moments, with the time of every signal; sampled ones have it in their meters."""
        self._timed += 1
        self._until_timed = weight = 1 if self._timed < TIMED_FIRST else TIMED_EVERY
        for signal, method in self._listeners[moment]:
            begin = perf_counter()
            try:
                method(*args)
            except Exception as error:
                self.fail(signal, error)
            if not signal.sampled:
                signal.meter.seconds += weight * (perf_counter() - begin)

    def _switch_on(self, kind: type[Signal]) -> None:
        recorder = self._recorder
        ledger, options = recorder.ledger, recorder.options
        if kind.name in options.signals_off:
            ledger.off(kind.name, "switched off when the run was started")
            return
        if not kind.default_on and kind.name not in options.signals_on:
            ledger.off(kind.name, f"off unless asked for with --signal {kind.name}=on")
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
        for moment in MOMENTS:
            method = getattr(signal, moment, None)
            if method is not None:
                alone = kind.sampled or moment == "every_second"  # not timed with the others
                self._listeners[moment].append((signal, signal.meter.watched(method) if alone else method))
