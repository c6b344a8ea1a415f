"""The recording as its signals see it: see `signals/context.py`, which says what each of these is for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracelyze.collectors.cadence.budget import Budget, Meter
from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.calling import unrecorded
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path.path import FastPath
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.recording.ledger import Ledger
from tracelyze.collectors.signals.context import FastPathControl, NextCall, PausableSignal
from tracelyze.collectors.storage.pending import PendingSteps
from tracelyze.collectors.system.training_thread import TrainingThread


class Context:
    """Implements SignalContext. What signals call often is the other object's own method."""

    def __init__(
        self,
        torch: Any,
        options: CollectOptions,
        guard: Guard,
        progress: Progress,
        program: Program,
        losses: LossSampling,
        next_call: NextCall,
        fast_path: FastPath,
        dispatcher: Dispatcher,
        rows: PendingSteps,
        budget: Budget,
        ledger: Ledger,
        record_event: Callable[..., None],
    ) -> None:
        self.torch = torch
        self.options = options
        self.progress = progress
        self.program = program
        self.losses = losses
        self.next_call = next_call
        self.fast_path: FastPathControl = fast_path
        self.now = guard.clock.now
        self.emit = guard.writer.emit
        self.defer = rows.defer
        self.record_event = record_event
        self.meter = budget.meter
        self.switched_off = ledger.off
        self._guard = guard
        self._dispatcher = dispatcher

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
        self.progress.alert = True
        self._dispatcher.resume_all()

    def unrecorded(self) -> contextlib.AbstractContextManager[None]:
        return unrecorded(self.progress, self.losses)

    def add_overhead(self, seconds: float) -> None:
        self._guard.overhead.seconds += seconds

    def folder(self) -> Path | None:
        writer = self._guard.writer
        if writer.folder is None:  # The disk is so slow that the thread that writes has not made it yet.
            writer.flush()
        return writer.folder
