"""The recording as its signals see it: see `signals/context.py`, which says what each of these is for."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tracelyze.collectors.cadence.budget import Meter
from tracelyze.collectors.recording.calling import unrecorded
from tracelyze.collectors.recording.parts import Parts
from tracelyze.collectors.signals.context import FastPathControl, PausableSignal
from tracelyze.collectors.system.training_thread import TrainingThread


class Context:
    """Implements SignalContext. What signals call often is the other object's own method."""

    def __init__(self, parts: Parts, fast_path: FastPathControl) -> None:
        self.torch = parts.torch
        self.options = parts.options
        self.progress = parts.progress
        self.program = parts.program
        self.losses = parts.losses
        self.next_call = parts.next_call
        self.fast_path = fast_path
        self.now = parts.guard.clock.now
        self.emit = parts.guard.writer.emit
        self.defer = parts.rows.defer
        self.record_event = parts.record_event
        self.meter = parts.budget.meter
        self.switched_off = parts.ledger.off
        self._guard = parts.guard
        self._dispatcher = parts.dispatcher

    @property
    def thread(self) -> TrainingThread:
        return self._guard.thread

    def pause(self, signal: PausableSignal, until: float) -> None:
        self._dispatcher.pause(signal, until)

    def resume(self, meter: Meter) -> None:
        self._dispatcher.resume(meter)

    def listeners_changed(self) -> None:
        self._dispatcher.listeners_changed()

    def raise_alert(self) -> None:
        self._dispatcher.raise_alert()

    def unrecorded(self) -> contextlib.AbstractContextManager[None]:
        return unrecorded(self.progress, self.losses)

    def add_overhead(self, seconds: float) -> None:
        self._guard.overhead.seconds += seconds

    def folder(self) -> Path | None:
        writer = self._guard.writer
        if writer.folder is None:  # The disk is so slow that the thread that writes has not made it yet.
            writer.flush()
        return writer.folder
