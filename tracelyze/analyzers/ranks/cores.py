"""The process folders of a large run on the cores of this machine: processes of their own, which speak over pipes.

They are plain processes, not a pool: one that starts a program's main module anew, as pools do, would run the script
that called :func:`tracelyze.diagnose`. Folders of a process that dies are judged by this one.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.ranks.summary import Task

FOLDER: Final = 5e-3
"""Seconds that a folder takes whatever is in it; measured, as is the rest, on one core."""
BYTE: Final = 2e-8
"""Seconds for each byte of its tables."""
WORTH: Final = 4.0
"""Seconds of work for each process that is started: a process takes 1 s to be ready."""
MOST: Final = 8
"""Processes, each of which holds up to 200 MB."""
AT_ONCE: Final = 4
"""Folders that are sent at a time, and judged before the next ones are asked for."""


def shared(
    judge: Callable[[Task], bytes], tasks: Sequence[Task], workers: int | None = None, work: int = 0
) -> Iterator[bytes]:
    """The answers to all tasks in order, from `workers` processes: by default as many as `work` bytes are worth."""
    if workers is None:
        worth = int((FOLDER * len(tasks) + BYTE * work) / WORTH)
        workers = min(worth, MOST, _cores())
    workers = min(workers, len(tasks))
    if workers < 2:
        yield from map(judge, tasks)
        return
    pieces = [tasks[begin : begin + AT_ONCE] for begin in range(0, len(tasks), AT_ONCE)]
    busy = [_Worker(judge) for _ in range(min(workers, len(pieces)))]
    try:
        for worker, piece in zip(busy, pieces, strict=False):
            worker.begin(piece)
        for index, piece in enumerate(pieces):  # by turns: pieces take about the same time each
            worker = busy[index % len(busy)]
            answers = worker.answer()
            if index + len(busy) < len(pieces):
                worker.begin(pieces[index + len(busy)])
            yield from answers if answers is not None else map(judge, piece)
    finally:
        for worker in busy:
            worker.end()


class _Worker:
    """A process (:mod:`tracelyze.analyzers.ranks.worker`) that judges pieces of a run."""

    def __init__(self, judge: Callable[[Task], bytes]) -> None:
        package = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(entry for entry in (package, os.environ.get("PYTHONPATH")) if entry)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tracelyze.analyzers.ranks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tasks, self._answers = self._process.stdin, self._process.stdout
        self._send(judge)

    def begin(self, piece: Sequence[Task]) -> None:
        """Have it judge these folders."""
        self._send(list(piece))

    def answer(self) -> list[bytes] | None:
        """Its answers; None if it died, and where one of the folders cannot be read, which its judge will say."""
        try:
            found: list[bytes] | None = pickle.load(self._answers)  # noqa: S301  # of our own process
        except (EOFError, OSError, pickle.UnpicklingError):
            return None
        return found

    def end(self) -> None:
        """Stop the process; it has nothing to tidy up."""
        self._process.kill()
        self._process.wait()
        self._answers.close()
        try:
            self._tasks.close()
        except OSError:  # what it did not read any more
            return

    def _send(self, message: Any) -> None:
        try:
            pickle.dump(message, self._tasks)
            self._tasks.flush()
        except OSError:  # it died meanwhile, which answer() will see
            return


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
