"""What all commands share: the application that they register with, exit codes, output, options."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from typing import Annotated

import typer

from tracelyze.version import __version__

CONTEXT = {"help_option_names": ["-h", "--help"]}


class ExitCode(IntEnum):
    """What a script can rely on. `collect` exits with the wrapped program's own status instead."""

    DONE = 0
    FINDINGS = 1  # --fail-on was reached
    WRONG_INPUT = 2  # the call, the configuration or the input is wrong, or tracelyze failed on it
    INTERRUPTED = 130  # Ctrl-C, as shells have it
    BROKEN_PIPE = 141  # the reader of our output went away, as shells have it


MaxGib = Annotated[
    float | None,
    typer.Option(
        "--max-gib",
        metavar="N",
        min=0.001,
        help="Most JSON to read from one trace, even if it unpacks suspiciously well.  [default: 64]",
    ),
]
"""The option that raises the limits on the size of a trace."""

app = typer.Typer(
    name="tracelyze",
    help="Finds out, after the fact, why a PyTorch training run went wrong.",
    epilog="Record a run with tracelyze collect -- python train.py, then explain it with tracelyze diagnose RUN.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tracelyze {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def allow(max_gib: float | None) -> None:
    """Sets the limits on the size of a trace, if the user gave one."""
    if max_gib is not None:
        from tracelyze.analyzers.kineto.reading import source

        source.ALLOWED.gib = max_gib


def emit(text: str) -> None:
    """Print data on stdout. A reader that has gone away (`| head`) ends the command quietly."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more on its way out, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
