"""The process that judges the runs which :mod:`tracelyze.fleet.local` sends it: `python -m tracelyze.fleet.worker`.

It speaks pickle with the process that started it: the file system, then one path after another, come on its standard
input; a table for each goes to its standard output. Whatever else writes there goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import sys

from tracelyze.fleet import judging, table


def main() -> None:
    """Judge what comes, until the other end is closed."""
    import pyarrow as pa

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    pa.set_cpu_count(1)  # there is a process for each core
    try:
        filesystem = pickle.load(sys.stdin.buffer)  # noqa: S301  # of the process that started this one
        while True:
            run = pickle.load(sys.stdin.buffer)  # noqa: S301
            pickle.dump(table.to_arrow(judging.diagnose_row({"path": run}, filesystem)["checks"]), answers)
            answers.flush()
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main()
