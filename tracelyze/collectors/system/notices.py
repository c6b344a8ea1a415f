"""The few lines that the collector has for people, on the program's stderr."""

from __future__ import annotations

import contextlib
import select
import signal
import sys
from collections.abc import Iterator
from typing import Any


def say(text: str) -> None:
    """Write one line. Nothing happens where nobody can read it any more, and nothing is raised."""
    with _no_signal_of_a_broken_pipe(), contextlib.suppress(OSError, ValueError, AttributeError):
        if _takes_a_line(sys.stderr):
            sys.stderr.write(f"[tracelyze] {text}\n")


def _takes_a_line(stream: Any) -> bool:
    """Not so a pipe that is full, where the program would wait for a reader that may never read, and one without a
    reader: what is written there stays in the buffer, to be written again as Python ends."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # an object of the program's own
        return True
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return [events for _, events in poll.poll(0)] == [select.POLLOUT]


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
