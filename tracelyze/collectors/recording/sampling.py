"""What is looked at once a second, from threads of their own: it goes on while the training waits or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.collectors.recording.recorder import Recorder
    from tracelyze.collectors.signals.signal import Signal
    from tracelyze.collectors.system.threads import Threads

PERIOD = 1.0  # seconds
Listener = tuple["Signal", Callable[..., None]]


def start(
    recorder: Recorder, listeners: Sequence[Listener], fail: Callable[[Signal, Exception], None], threads: Threads
) -> None:
    """Start one thread for the signals that want `every_second`, and one more for each that calls what may hang.

    The threads are daemons and nobody waits for them: neither the training nor its exit can be held up by them.
    `fail` is told when a signal raises; the others go on.
    """
    able = [listener for listener in listeners if recorder.ledger.is_on(listener[0].name)]
    together = [listener for listener in able if not listener[0].may_hang]
    for group in [together, *([listener] for listener in able if listener[0].may_hang)]:
        if group:
            threads.start("tracelyze-samples", _sampler(recorder, group, fail))


def _sampler(
    recorder: Recorder, listeners: list[Listener], fail: Callable[[Signal, Exception], None]
) -> Callable[[threading.Event], None]:
    due = recorder.now()  # outlives the thread: one that stood still for a fork goes on in its rhythm

    def sample(stop: threading.Event) -> None:
        nonlocal due
        while not stop.wait(max(0.0, due - recorder.now())) and not recorder.off and listeners:
            begun = recorder.now()
            _sample(recorder, listeners, fail, stop)
            due = max(begun + PERIOD, recorder.now() + 0.1)

    return sample


def _sample(
    recorder: Recorder, listeners: list[Listener], fail: Callable[[Signal, Exception], None], stop: threading.Event
) -> None:
    row: dict[str, Any] = {"time": recorder.now(), "wall": time.time(), "step": recorder.steps}
    for listener in list(listeners):
        signal, look = listener
        try:
            look(row)
        except Exception as error:
            listeners.remove(listener)
            fail(signal, error)
    if len(row) > 3 and not stop.is_set():
        recorder.emit("samples", row)
