"""Which recorder a thread reports to: one per process, and one more for each thread that trains beside another one.

A thread trains when it calls backward. Threads that only evaluate, a loader's threads and the autograd engine's own,
on which hooks of a backward run where there are devices, report to nobody or to the training they work for.
"""

from __future__ import annotations

import threading
from typing import Any

from tracelyze.collectors.recording.recorder import Recorder


class _Local(threading.local):
    own: Recorder | None = None


class Recorders:
    """The recorders of this process."""

    def __init__(self, first: Recorder) -> None:
        """`first` is the process's own recorder; `local.own` is the one that a thread has for itself, if any."""
        self.first = first
        self._others: list[Recorder] = []
        self.local = _Local()
        self._lock = threading.Lock()

    def everyone(self) -> list[Recorder]:
        """All recorders, the process's own first."""
        return [self.first, *self._others]

    def for_backward(self) -> Recorder:
        """The recorder of this thread, which calls backward: a new one if another living thread has the process's."""
        current = self.local.own or self.first
        thread = current.guard.thread
        if thread.ident == threading.get_ident() or current.off or thread.claim() or not _is_pythons():
            return current
        with self._lock:
            mine = next((other for other in self._others if not other.ended and other.guard.thread.claim()), None)
            if mine is None:
                mine = Recorder(current.torch, current.run, current.options, len(self._others) + 2)
                mine.guard.thread.claim()
                self._others.append(mine)
        self.local.own = mine
        return mine

    def for_step(self, current_graph_task: Any) -> Recorder:
        """The recorder of the optimizer that steps on this thread, which may be one of the autograd engine's."""
        current = self.local.own or self.first
        if current_graph_task() != -1 and not current.progress.in_backward:
            return next((one for one in self.everyone() if one.progress.in_backward), current)
        return current


def _is_pythons() -> bool:
    """Whether this thread was started by Python code."""
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]  # without making one up
    return thread is not None and not isinstance(thread, threading._DummyThread)
