"""What is sampled once a second, from threads of their own: it goes on while the training waits or hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time as wall_time
from typing import Any

from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.ledger import Ledger
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.storage.writer import Writer

PERIOD = 1.0  # seconds
Listener = tuple[Signal, Callable[..., None]]


@dataclass(frozen=True)
class Sampling:
    """`failed` is called when a signal raises; the others go on."""

    now: Callable[[], float]
    progress: Progress
    writer: Writer
    ledger: Ledger
    failed: Callable[[Signal, Exception], None]

    def start(self, listeners: Sequence[Listener]) -> None:
        """Start one thread for the signals that listen to `every_second`, and one more for each that calls what may
        hang.

        The threads are daemons and nobody waits for them: neither the training nor its exit can be held up by them.
        """
        able = [listener for listener in listeners if self.ledger.is_on(listener[0].name)]
        together = [listener for listener in able if not listener[0].may_hang]
        for some in [together, *([listener] for listener in able if listener[0].may_hang)]:
            if some:
                self.writer.threads.start(self._loop(some))

    def _loop(self, listeners: list[Listener]) -> Callable[[threading.Event], None]:
        due = self.now()  # Outlives the thread: one that was ended for a fork goes on in its rhythm.

        def loop(stop: threading.Event) -> None:
            nonlocal due
            while not stop.wait(max(0.0, due - self.now())) and not self.writer.off and listeners:
                begun = self.now()
                self._sample(listeners, stop)
                due = max(begun + PERIOD, self.now() + 0.1)

        return loop

    def _sample(self, listeners: list[Listener], stop: threading.Event) -> None:
        row: dict[str, Any] = {"time": self.now(), "wall": wall_time(), "step": self.progress.steps}
        for listener in list(listeners):
            signal, sample = listener
            try:
                sample(row)
            except Exception as error:
                listeners.remove(listener)
                self.failed(signal, error)
        if len(row) > 3 and not stop.is_set():
            self.writer.emit("samples", row)
