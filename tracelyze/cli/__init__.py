"""The command line: `tracelyze collect | diagnose | compare | rules | signals | import | compact | schema`.

Each command imports what it needs when it runs, so that `tracelyze --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any

import click

from tracelyze import __version__
from tracelyze.errors import InputError

PATH = click.Path(path_type=Path)


class ExitCode(IntEnum):
    """What a script can rely on. `collect` exits with the wrapped program's own status instead."""

    DONE = 0
    FINDINGS = 1  # --fail-on was reached
    WRONG_INPUT = 2  # the call, the configuration or the input is wrong
    INTERRUPTED = 130  # Ctrl-C, as shells have it
    BROKEN_PIPE = 141  # the reader of our output went away, as shells have it


class Commands(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands."""
        return list(self.commands)


@click.group(
    name="tracelyze",
    cls=Commands,
    help="Finds out, after the fact, why a PyTorch training run went wrong.",
    epilog="Record a run with tracelyze collect -- python train.py, then explain it with tracelyze diagnose RUN.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="tracelyze %(version)s")
def app() -> None:
    """The command line."""


max_gib = click.option(
    "--max-gib",
    type=click.FloatRange(min=0.001),
    metavar="N",
    help="Most JSON to read from one trace, even if it unpacks suspiciously well.  [default: 64]",
)
"""The option that raises the limits on the size of a trace."""


def allow(gib: float | None) -> None:
    """Sets the limits on the size of a trace, if the user gave one."""
    if gib is not None:
        from tracelyze.analyzers.kineto import source

        source.ALLOWED.gib = gib


def emit(text: str) -> None:
    """Print data on stdout. A reader that has gone away (`| head`) ends the command quietly."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more on its way out, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.BROKEN_PIPE)


def main() -> None:
    """Entry point of `tracelyze` and `python -m tracelyze`. Expected errors are one line on stderr, no traceback."""
    try:
        status: Any = app.main(prog_name="tracelyze", standalone_mode=False)
        sys.exit(status)
    except InputError as error:
        from tracelyze.reports.escaping import one_line

        sys.stderr.write(f"tracelyze: {one_line(error)}\n")
        sys.exit(ExitCode.WRONG_INPUT)
    except click.ClickException as error:  # the call is wrong
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(ExitCode.INTERRUPTED)


# The commands register themselves with `app`; listed in the order of --help.
from tracelyze.cli import collect, diagnose, compare, catalogue, runs  # noqa: E402, F401, I001
