"""The collector's own threads of one process: daemons that nobody waits for, and that pause while it forks.

A fork copies the thread that calls it and no other; from Python 3.12 on it warns where there are others. So a program
that forks finds itself as it would be without us.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

PATIENCE = 0.2  # seconds that a fork may wait for all threads together: one may hang in a driver or on a disk


class Threads:
    """Functions that run until the event they are given is set; they are called again after a fork."""

    def __init__(self) -> None:
        self._work: list[tuple[str, Callable[[threading.Event], None]]] = []
        self._running: list[threading.Thread] = []
        self._stop = threading.Event()
        self.paused = False

    def start(self, name: str, work: Callable[[threading.Event], None]) -> None:
        """Run `work(stop)` in a thread called `name`."""
        self._work.append((name, work))
        self._run(name, work)

    def pause(self) -> None:
        """Called right before a fork: end all threads, within :data:`PATIENCE`."""
        if not self._running or self._stop.is_set():
            return
        self.paused = True
        self._stop.set()
        until = time.monotonic() + PATIENCE
        for thread in self._running:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
                while _is_still_counted(thread) and time.monotonic() < until:
                    time.sleep(0.0005)

    def after_fork(self) -> None:
        """Called in the parent, before Python counts threads and warns: from 3.12 on, wait for what happens next."""
        if sys.version_info < (3, 12):
            self.resume()

    def resume(self) -> None:
        """Go on after a fork, as soon as the program does something that is recorded: not our own last words."""
        if not self.paused or threading.current_thread() in self._running:
            return
        self.paused = False
        self._stop, self._running = threading.Event(), []
        with contextlib.suppress(RuntimeError):  # the interpreter is about to exit, which ends the recording anyway
            for name, work in self._work:
                self._run(name, work)

    def end(self) -> None:
        """Let all threads end, and do not wait for them."""
        self.paused = False
        self._stop.set()

    def _run(self, name: str, work: Callable[[threading.Event], None]) -> None:
        thread = threading.Thread(target=work, args=(self._stop,), name=name, daemon=True)
        self._running.append(thread)
        with _signals_blocked():
            thread.start()


# A fault of the thread itself must reach its handler: blocked, it would end the process without a word.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """A thread that is started within takes no signal that is sent to the process.

    A program that blocks a signal in its own threads and waits for it (`signal.sigwait`) must be the one that gets it;
    in a thread of ours it would take its default action, which for SIGTERM is to end the process.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_still_counted(thread: threading.Thread) -> bool:
    """Whether the operating system has yet to end it: before 3.13 `join` returns earlier, and Python counts it then."""
    return sys.version_info < (3, 13) and os.path.exists(f"/proc/self/task/{thread.native_id}")
