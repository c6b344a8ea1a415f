"""What the worker processes of a DataLoader do while the training has waited long for a batch."""

from __future__ import annotations

import contextlib
import json
from time import perf_counter
from typing import Any

from tracelyze.collectors.internals.private_names import LOADER_ITERATOR
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.system import processes

LONG_SECONDS = 10.0  # of waiting for one batch before the workers are sampled; then after twice that, and so on
MAX_SAMPLES = 16  # per run
MAX_WORKERS = 64


class LoaderProcesses(Signal):
    name = "loader_processes"
    needs = (LOADER_ITERATOR,)
    columns = ()  # events of kind loader-wait
    about = "What a DataLoader's workers do while a batch has been waited for for long (events)."
    cost = "nothing, while batches come"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._again = 0.0  # seconds of waiting after which to sample once more
        self._samples = 0

    def opened(self) -> None:
        self._reader = processes.reader()

    def every_second(self, row: dict[str, Any]) -> None:
        awaited = self.progress.awaited
        if awaited is None:
            self._again = 0.0
            return
        seconds = perf_counter() - awaited[1]
        if seconds < max(LONG_SECONDS, self._again) or self._samples >= MAX_SAMPLES:
            return
        self._again = 2 * seconds
        self._samples += 1
        iterator = awaited[0]()
        pids = [(worker.pid, worker.exitcode) for worker in getattr(iterator, "_workers", [])[:MAX_WORKERS]]
        del iterator
        if pids:
            found = [{"pid": pid} | self._state(pid) for pid, _ in pids]
            self.context.record_event("loader-wait", f"{len(pids)} workers", json.dumps(found), value=seconds)
        else:
            self.context.record_event("loader-wait", "no workers", value=seconds)

    def _state(self, pid: int) -> dict[str, Any]:
        with contextlib.suppress(OSError, IndexError):
            return self._reader.state(pid)
        return {"state": "gone"}
