"""`tracelyze collect`: run a training script unchanged and record it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracelyze.cli import CONTEXT, app


@app.command(
    context_settings={**CONTEXT, "allow_interspersed_args": False},
    epilog="tracelyze collect -- torchrun --nproc-per-node 2 train.py --lr 3e-4",
)
def collect(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="The command as you type it without tracelyze.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="RUN", help="Run directory to make.  [default: runs/<script>-<time>]"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    no_signal: Annotated[
        list[str] | None,
        typer.Option("--no-signal", metavar="NAME,...", help="Do not record this signal; may be repeated."),
    ] = None,
    profile_every: Annotated[
        int,
        typer.Option(
            "--profile-every", metavar="N", min=0, help="Profile 4 steps in every N; they are slower.  [default: never]"
        ),
    ] = 0,
) -> None:
    """Run COMMAND and record what its training does.

    COMMAND keeps its arguments, terminal, signals and exit status. TRACELYZE_DISABLE=1 in the environment runs it
    unobserved.
    """
    from tracelyze.collectors.launch import collect as launch
    from tracelyze.collectors.options import CollectOptions

    launch(command or [], out, CollectOptions(quiet, _signals(no_signal or []), profile_every))


def _signals(given: list[str]) -> tuple[str, ...]:
    names = [name.strip().replace("-", "_") for names in given for name in names.split(",") if name.strip()]
    if names:
        from tracelyze.collectors.signals import SIGNALS
        from tracelyze.suggestions import unknown

        known = {signal.name for signal in SIGNALS}
        for name in names:
            if name not in known:
                raise unknown("--no-signal: no such signal", name, known)
    return tuple(names)
