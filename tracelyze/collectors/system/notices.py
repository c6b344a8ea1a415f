"""The few lines that the collector has for people, on the program's stderr."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator


def say(text: str) -> None:
    """Write one line. Nothing happens where nobody can read it any more, and nothing is raised."""
    with _no_signal_of_a_broken_pipe(), contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"[tracelyze] {text}\n")


@contextlib.contextmanager
def _no_signal_of_a_broken_pipe() -> Iterator[None]:
    """SIGPIPE ends a program that has given it back its default action, as tools for the shell do, when it writes to a
    pipe that nobody reads. What we write within raises BrokenPipeError instead."""
    number = getattr(signal, "SIGPIPE", None)
    if number is None or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        if number not in before and number in signal.sigpending():
            signal.sigwait({number})  # at once: it waits for this thread
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
