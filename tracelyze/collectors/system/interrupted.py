"""The status of a program that Ctrl-C ended: the interpreter forgets it when it runs code that is given as a string.

Python ends by SIGINT itself (130 in a shell) if the last such code, the program's, raised KeyboardInterrupt. What the
collector imports at the end runs more of it (`dataclass`, `namedtuple`), and Python would exit with 1.
"""

from __future__ import annotations

import contextlib
import sys


def keep_status() -> None:
    """To be called when Python ends, last of our own work there, if nobody caught a KeyboardInterrupt.

    Does nothing where somebody types: there it ended one command, and not the program.
    """
    if not (hasattr(sys, "ps1") or sys.flags.inspect):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # noqa: S102
