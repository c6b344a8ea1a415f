"""What stands between the hooks and the recorder's methods: no error of ours gets out, and the time is put down."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

if TYPE_CHECKING:
    from tracelyze.collectors.recording.recorder import Recorder


def never_raises(method: Callable[..., None]) -> Callable[..., None]:
    """An error of ours in what the hooks call ends the recording; the program does not see it."""

    @functools.wraps(method)
    def safe(self: Recorder, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.writer.stop(error)

    return safe


def of_training(method: Callable[..., None]) -> Callable[..., None]:
    """The same for what only the thread that trains may tell, with the time it takes; while nobody trains, all may."""

    @functools.wraps(method)
    def timed(self: Recorder, *args: Any) -> None:
        owner = self._owner
        if self.off or (owner is not None and owner != get_ident()):
            return
        before = self.overhead
        self.called_at = begin = perf_counter()
        try:
            method(self, *args)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.writer.stop(error)
        self.overhead = before + perf_counter() - begin  # what was called within has added its own: it counts once

    return timed
