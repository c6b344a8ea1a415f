"""The process folders of a large run on the cores of this machine; this process judges those of one that dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tracelyze.errors import InputError
from tracelyze.subprocesses import Worker, WorkerDiedError, cores

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
        workers = min(worth, MOST, cores())
    workers = min(workers, len(tasks))
    if workers < 2:
        yield from map(judge, tasks)
        return
    pieces = [tasks[begin : begin + AT_ONCE] for begin in range(0, len(tasks), AT_ONCE)]
    busy = [Worker(partial(_piece, judge)) for _ in range(min(workers, len(pieces)))]
    try:
        for worker, piece in zip(busy, pieces, strict=False):
            worker.begin(piece)
        for index, piece in enumerate(pieces):  # by turns: pieces take about the same time each
            worker = busy[index % len(busy)]
            answers = _answers(worker)
            if index + len(busy) < len(pieces):
                worker.begin(pieces[index + len(busy)])
            yield from answers if answers is not None else map(judge, piece)
    finally:
        for worker in busy:
            worker.end()


def _piece(judge: Callable[[Task], bytes], tasks: Sequence[Task]) -> list[bytes] | None:
    """In the process: the answers to some tasks; None where one of the folders cannot be read."""
    try:
        return [judge(task) for task in tasks]
    except InputError:  # the other process comes to it, and says so
        return None


def _answers(worker: Worker) -> list[bytes] | None:
    """What a process has to say of its tasks; None if it died."""
    try:
        found: list[bytes] | None = worker.answer()
    except WorkerDiedError:
        return None
    return found
