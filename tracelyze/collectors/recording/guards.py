"""What stands between the hooks and what they call: no error of ours gets out, and the time is counted."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter
from typing import Any, Protocol, TypeVar, cast

from tracelyze.collectors.cadence.overhead import Overhead
from tracelyze.collectors.storage.writer import Writer
from tracelyze.collectors.system.clock import Clock
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.system.training_thread import TrainingThread


@dataclass(frozen=True)
class Guard:
    """What the decorators of this module need of the recording."""

    writer: Writer
    thread: TrainingThread
    clock: Clock
    overhead: Overhead
    # Nothing of the program sees what is computed within. The first is for where no mode would see an operation.
    unseen_by_functions: Callable[[], contextlib.AbstractContextManager[Any]]
    unseen_by_all: Callable[[], contextlib.AbstractContextManager[Any]]
    function_modes: Callable[[], int]  # number of the program's modes that would see a call of a function of torch
    dispatch_modes: Callable[[], int]  # number of the program's modes that would see an operation

    def unseen(self) -> contextlib.AbstractContextManager[Any]:
        """Nothing of the program sees what is computed within it."""
        return self.unseen_by_all() if self.dispatch_modes() else self.unseen_by_functions()


class Guarded(Protocol):
    """An object whose methods hooks call."""

    guard: Guard


Method = TypeVar("Method", bound=Callable[..., None])


def never_raises(method: Method) -> Method:
    """An error of ours in what the hooks call ends the recording; the program does not see it."""

    @functools.wraps(method)
    def safe(self: Guarded, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.guard.writer.stop(error)

    return cast("Method", safe)


def on_training_thread(method: Method) -> Method:
    """Wrap a method as `never_raises` does, if it counts only on the thread that trains: elsewhere it is not called.

    While no thread is known to train, each counts. The time that it takes is added to the overhead.
    """

    @functools.wraps(method)
    def timed(self: Guarded, *args: Any) -> None:
        guard = self.guard
        trains = guard.thread.ident
        if guard.writer.off or (trains is not None and trains != get_ident()):
            return
        overhead = guard.overhead
        before = overhead.seconds
        guard.clock.called_at = begin = perf_counter()
        try:
            with guard.unseen_by_all() if guard.dispatch_modes() else guard.unseen_by_functions():
                method(self, *args)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            guard.writer.stop(error)
        overhead.seconds = before + perf_counter() - begin  # What was called within has added its own: it counts once.

    return cast("Method", timed)
