"""The collector's own threads of one process: daemons that nobody waits for, and that pause while it forks.

A fork copies the thread that calls it and no other; from Python 3.12 on it warns where there are others. So a program
that forks finds itself as it would be without us.

`threading` knows nothing of them: a program that waits for every thread of `threading.enumerate()` would wait for ever.
So nothing that runs in them may call `threading.current_thread()`, which makes them known.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic, sleep  # The program may replace them in their module.

PATIENCE = 0.2  # seconds that a fork may wait for all threads together: one may hang in a driver or on a disk


class _Thread:
    """A thread of ours that runs `work(stop)`."""

    def __init__(self, work: Callable[[threading.Event], None], stop: threading.Event) -> None:
        self._work, self._stop = work, stop
        self._ended = threading.Event()
        self._number: int | None = None  # of the operating system's; None before it runs
        with _signals_blocked():
            self.ident = _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        idents.add(_thread.get_ident())
        self._number = threading.get_native_id()
        try:
            self._work(self._stop)
        finally:
            idents.discard(_thread.get_ident())
            self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most for so long. Whether it has ended."""
        return self._ended.wait(seconds)

    def is_counted(self) -> bool:
        """Whether the operating system has yet to end it: it does so a little after its last line, and counts it."""
        return os.path.exists(f"/proc/self/task/{self._number}")


idents: set[int] = set()
"""What `threading.get_ident()` says in each thread of ours that runs."""


class Threads:
    """Functions that run until the event they are given is set; they are called again after a fork."""

    def __init__(self) -> None:
        self._work: list[Callable[[threading.Event], None]] = []
        self._running: list[_Thread] = []
        self._stop = threading.Event()
        self.paused = False

    def start(self, work: Callable[[threading.Event], None]) -> None:
        """Run `work(stop)` in a thread. Raises RuntimeError where no more can be started."""
        self._work.append(work)
        self._running.append(_Thread(work, self._stop))

    def pause(self) -> None:
        """Called right before a fork: end all threads, within :data:`PATIENCE`."""
        if not self._running or self._stop.is_set():
            return
        self.paused = True
        self._stop.set()
        until = monotonic() + PATIENCE
        for thread in self._running:
            if thread.ident != _thread.get_ident():
                thread.wait(max(0.0, until - monotonic()))
                while thread.is_counted() and monotonic() < until:
                    sleep(0.0005)

    def after_fork(self) -> None:
        """Called in the parent, before Python counts threads and warns: from 3.12 on, wait for what happens next."""
        if sys.version_info < (3, 12):
            self.resume()

    def resume(self) -> None:
        """Go on after a fork, as soon as the program does something that is recorded: not our own last words."""
        if not self.paused or _thread.get_ident() in idents:
            return
        self.paused = False
        self._stop, self._running = threading.Event(), []
        with contextlib.suppress(RuntimeError):  # the interpreter is about to exit, which ends the recording anyway
            self._running += [_Thread(work, self._stop) for work in self._work]

    def end(self) -> None:
        """Let all threads end, and do not wait for them."""
        self.paused = False
        self._stop.set()


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
