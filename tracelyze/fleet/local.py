"""The runs of a fleet on the cores of this machine: one process each, which may die of a run without the others.

The process of a run that brings it down (out of memory, a fault in a library) or that takes longer than it may is
replaced, and the run becomes a row with the status "error".
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracelyze.fleet import table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

_PATIENCE: Final = 1.0  # seconds between two looks at who is late


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def judge(
    runs: Sequence[str], workers: int, seconds: float | None = None, filesystem: FileSystem | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Position and table of every run, as they get ready. `seconds`: the most that one run may take."""
    waiting = list(enumerate(runs))[::-1]
    busy = [_Worker(filesystem) for _ in range(min(workers, len(runs)))]
    try:
        for worker in busy:
            worker.begin(waiting.pop())
        while busy:
            ready = wait([worker.answers.fileno() for worker in busy], _PATIENCE)
            for index, worker in list(enumerate(busy)):
                answer = worker.finished(ready, seconds)
                if answer is None:
                    continue
                yield worker.position, answer
                if not waiting:
                    busy.remove(worker)
                    worker.end()
                    continue
                if worker.process.poll() is not None:
                    busy[index] = worker = _Worker(filesystem)
                worker.begin(waiting.pop())
    finally:
        for worker in busy:
            worker.end()


class _Worker:
    """A process (:mod:`tracelyze.fleet.worker`) that judges one run after another."""

    def __init__(self, filesystem: FileSystem | None) -> None:
        package = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(entry for entry in (package, os.environ.get("PYTHONPATH")) if entry)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tracelyze.fleet.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.tasks, self.answers = self.process.stdin, self.process.stdout
        self.position, self.run, self.since = 0, "", 0.0
        self._send(filesystem)

    def begin(self, task: tuple[int, str]) -> None:
        """Have it judge the run at this position."""
        self.position, self.run = task
        self.since = time.monotonic()
        self._send(self.run)

    def finished(self, ready: Sequence[Any], seconds: float | None) -> pa.Table | None:
        """The table of its run; an error in its place if it died or is late; None while it works."""
        if self.answers.fileno() in ready:
            try:
                found: pa.Table = pickle.load(self.answers)  # noqa: S301  # of our own process
                return found
            except (EOFError, OSError, pickle.UnpicklingError):
                self.process.kill()
                return self._error(f"the process that judged it died ({_ended(self.process.wait())})")
        if seconds is not None and time.monotonic() - self.since > seconds:
            self.end()
            return self._error(f"it took longer than {seconds:g} s; raise --timeout")
        return None

    def end(self) -> None:
        """Stop the process; it has nothing to tidy up."""
        self.process.kill()
        self.process.wait()
        self.answers.close()
        try:
            self.tasks.close()
        except OSError:  # what it did not read any more
            return

    def _send(self, message: object) -> None:
        try:
            pickle.dump(message, self.tasks)
            self.tasks.flush()
        except OSError:  # it died meanwhile, which finished() will see
            return

    def _error(self, reason: str) -> pa.Table:
        return table.to_arrow([table.error_row(self.run, reason)])


def _ended(code: int) -> str:
    if code < 0:
        killed = ", as the kernel does when memory runs out" if code == -9 else ""
        return f"signal {-code}{killed}"
    return f"exit status {code}"
