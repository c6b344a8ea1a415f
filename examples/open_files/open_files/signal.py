"""How many files the process holds open, once a second. Linux alone says."""

from __future__ import annotations

import os
from typing import Any

from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, Unavailable

DESCRIPTORS = "/proc/self/fd"


class OpenFiles(Signal):
    name = "open_files"
    columns = ("scalars.value",)
    about = "Open file descriptors of the process, once a second."
    cost = "0.2 ms a second, on a thread of its own"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        if not os.path.isdir(DESCRIPTORS):
            raise Unavailable("this system does not list a process's open files")

    def every_second(self, row: dict[str, Any]) -> None:
        """On a thread of the collector's, so that the training does not wait for it."""
        count = len(os.listdir(DESCRIPTORS))
        where = {"time": self.context.now(), "step": self.progress.steps}
        self.context.emit("scalars", {**where, "phase": "train", "name": "open files", "value": float(count)})
