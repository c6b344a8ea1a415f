"""Processes that do tasks one after another, each of which may die without the others.

They are plain processes, not a pool: one that starts a program's main module anew, as pools do, would run the script
that called :func:`tracelyze.diagnose`. `python -m tracelyze.subprocesses` speaks pickle with the process that started
it: a function, then one task after another come on its standard input; an answer to each goes to its standard output.
Whatever else writes there goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerDiedError(Exception):
    """The process ended before it answered. `how`: in words."""

    def __init__(self, code: int) -> None:
        killed = ", as the kernel does when memory runs out" if code == -9 else ""
        self.how = f"signal {-code}{killed}" if code < 0 else f"exit status {code}"
        super().__init__(self.how)


class Worker:
    """A process that calls `function` with one task after another; all that is sent has to be picklable."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        package = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(entry for entry in (package, os.environ.get("PYTHONPATH")) if entry)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tracelyze.subprocesses"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tasks, self._answers = self._process.stdin, self._process.stdout
        self._send(function)

    def begin(self, task: Any) -> None:
        """Have it do this task."""
        self._send(task)

    def answer(self) -> Any:
        """Its answer to the task that it began first, waited for. WorkerDiedError if none can come any more."""
        try:
            return pickle.load(self._answers)  # noqa: S301  # of our own process
        except (EOFError, OSError, pickle.UnpicklingError):
            self._process.kill()
            raise WorkerDiedError(self._process.wait()) from None

    def fileno(self) -> int:
        """What is ready to be read when it has answered, or died."""
        return self._answers.fileno()

    def is_gone(self) -> bool:
        """Whether its process has ended."""
        return self._process.poll() is not None

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


def main() -> None:
    """Do what comes, until the other end is closed."""
    import pyarrow as pa

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    pa.set_cpu_count(1)  # there is a process for each core
    try:
        function = pickle.load(sys.stdin.buffer)  # noqa: S301  # of the process that started this one
        while True:
            pickle.dump(function(pickle.load(sys.stdin.buffer)), answers)  # noqa: S301
            answers.flush()
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main()
