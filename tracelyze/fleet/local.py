"""The runs of a fleet on the cores of this machine: one process each, which may die of a run without the others.

The process of a run that brings it down (out of memory, a fault in a library) or that takes longer than it may is
replaced, and the run becomes a row with the status "error".
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final

from tracelyze.fleet import judging, table
from tracelyze.subprocesses import Worker, WorkerDiedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

_PATIENCE: Final = 1.0  # seconds between two looks at who is late


def judge(
    runs: Sequence[str], workers: int, seconds: float | None = None, filesystem: FileSystem | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Position and table of every run, as they get ready. `seconds`: the most that one run may take."""
    waiting = list(enumerate(runs))[::-1]
    busy = [_Judge(filesystem) for _ in range(min(workers, len(runs)))]
    try:
        for worker in busy:
            worker.begin(waiting.pop())
        while busy:
            ready = wait([one.worker.fileno() for one in busy], _PATIENCE)
            for index, worker in list(enumerate(busy)):
                answer = worker.finished(ready, seconds)
                if answer is None:
                    continue
                yield worker.position, answer
                if not waiting:
                    busy.remove(worker)
                    worker.worker.end()
                    continue
                if worker.worker.is_gone():
                    busy[index] = worker = _Judge(filesystem)
                worker.begin(waiting.pop())
    finally:
        for worker in busy:
            worker.worker.end()


class _Judge:
    """A process that judges one run after another, and the run that it is at."""

    def __init__(self, filesystem: FileSystem | None) -> None:
        self.worker = Worker(partial(_judged, filesystem))
        self.position, self.run, self.since = 0, "", 0.0

    def begin(self, task: tuple[int, str]) -> None:
        """Have it judge the run at this position."""
        self.position, self.run = task
        self.since = time.monotonic()
        self.worker.begin(self.run)

    def finished(self, ready: Collection[Any], seconds: float | None) -> pa.Table | None:
        """The table of its run; an error in its place if it died or is late; None while it works."""
        if self.worker.fileno() in ready:
            try:
                found: pa.Table = self.worker.answer()
                return found
            except WorkerDiedError as died:
                return self._error(f"the process that judged it died ({died.how})")
        if seconds is not None and time.monotonic() - self.since > seconds:
            self.worker.end()
            return self._error(f"it took longer than {seconds:g} s; raise --timeout")
        return None

    def _error(self, reason: str) -> pa.Table:
        return table.to_arrow([table.error_row(self.run, reason)])


def _judged(filesystem: FileSystem | None, run: str) -> pa.Table:
    """In the process: the table of one run."""
    return table.to_arrow(judging.diagnose_row({"path": run}, filesystem)["checks"])
