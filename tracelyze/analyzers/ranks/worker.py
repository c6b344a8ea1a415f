"""The process that judges folders for :mod:`cores`: `python -m tracelyze.analyzers.ranks.worker`.

It speaks pickle with the process that started it: a function, then lists of tasks come on its standard input; a list of
answers for each goes to its standard output. Whatever else writes there goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import sys

from tracelyze.errors import InputError


def main() -> None:
    """Judge what comes, until the other end is closed."""
    import pyarrow as pa

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    pa.set_cpu_count(1)  # there is a process for each core
    try:
        judge = pickle.load(sys.stdin.buffer)  # noqa: S301  # of the process that started this one
        while True:
            tasks = pickle.load(sys.stdin.buffer)  # noqa: S301
            try:
                found = [judge(task) for task in tasks]
            except InputError:
                found = None  # the other process comes to it, and says so
            pickle.dump(found, answers)
            answers.flush()
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main()
