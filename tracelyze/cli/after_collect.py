"""`tracelyze collect --diagnose`: the program runs as a child, and its verdict follows it.

Without this option `collect` becomes the program, which nothing can come after.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import typer

from tracelyze import schema
from tracelyze.errors import InputError

PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT")
"""What a scheduler sends to the process that it started, which is this one. Ctrl-C reaches the child by itself."""


def run_and_diagnose(become: Callable[[], NoReturn], folder: Path) -> NoReturn:
    """Run the program in a child process, which `become`s it, then say what went wrong. Exits as the program did.

    `folder`: the run directory that the child makes. A child that never was the program (a wrong call) is no run.
    """
    child = os.fork()
    if child == 0:
        become()
    status = _wait(child)
    code = os.waitstatus_to_exitcode(status)
    if (folder / schema.RUN_FILE).is_file():
        _diagnose(folder)
    raise typer.Exit(code if code >= 0 else 128 - code)


def _wait(child: int) -> int:
    """The child's status. Meanwhile signals go to the child."""

    def pass_on(number: int, _frame: Any) -> None:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            return

    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    before |= {getattr(signal, name): signal.signal(getattr(signal, name), pass_on) for name in PASSED_ON}
    try:
        return os.waitpid(child, 0)[1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _diagnose(run: Path) -> None:
    """The summary on stderr, where the program's own output does not end, and the page in the run directory."""
    from tracelyze import api, reports
    from tracelyze.cli import progress
    from tracelyze.reports import text

    try:
        with progress.working(f"reading {run}"):
            diagnosis = api.diagnose(run, picture=True)
        color = text.color_wanted(os.environ, sys.stderr.isatty())
        width = min(shutil.get_terminal_size().columns, text.WIDTH)
        sys.stderr.write(f"\n{text.render(diagnosis, color=color, width=width)}")
        page = reports.write(diagnosis, run / "diagnosis.html")
        sys.stderr.write(f"Report: {page}\n")
    except InputError as error:
        sys.stderr.write(f"tracelyze: {error}\n")
