"""`tracelyze watch`: diagnose a run again and again while it trains."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracelyze.cli.app import ExitCode, app, emit
from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis, Finding

_PAGER_SECONDS = 60.0
_NICENESS = 10  # the training comes first


@app.command(
    short_help="Diagnose a run while it trains.",
    epilog="Exit status: 0 the program ended, 1 something critical is certain, 2 the input or the call is wrong.",
)
def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a program that trains.")],
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Between two diagnoses; more for a long run.")
    ] = 30.0,
    on_finding: Annotated[
        str | None,
        typer.Option(
            "--on-finding",
            metavar="CMD",
            help="Run by the shell for each new finding: its JSON on stdin, TRACELYZE_RULE, _SEVERITY, _CONFIDENCE, "
            "_TITLE, _STEP and _RUN in the environment.",
        ),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Watch on to the end, whatever is certain by then.")
    ] = False,
) -> None:
    """Diagnose RUN again and again while it trains, and report each finding once.

    Ends when something critical is certain, or with the program. It only reads, and takes a tenth of a core at most.
    """
    from tracelyze import analyzers, watching

    if not analyzers.is_run(run):
        raise InputError(Cause.NOT_A_RUN, f"{run}: no run directory; give the folder that `tracelyze collect` printed")
    with suppress(OSError):
        os.nice(_NICENESS)
    certain = False
    for update in watching.watch(run, every):
        for finding in update.new:
            _report(finding)
            if on_finding is not None:
                _call(on_finding, finding, run)
        certain = bool(update.certain())
        if update.ended:
            emit(f"{_now()}  the program has ended{_how(update.diagnosis)}\n")
        elif certain and not keep_going:
            break
    if certain:
        raise typer.Exit(ExitCode.FINDINGS)


def _how(diagnosis: Diagnosis) -> str:
    """How the program ended, and the verdict; where nothing trained, why nothing is known."""
    from tracelyze.reports.escaping import one_line

    kind = diagnosis.run.exit.kind
    ended = "" if kind == "unknown" else f" ({kind})"
    return f"{ended}: {one_line(diagnosis.verdict_reason or diagnosis.verdict)}"


def _report(finding: Finding) -> None:
    from tracelyze.reports.escaping import one_line

    since = "" if finding.first_step is None else f" (since step {finding.first_step:,})"
    emit(f"{_now()}  {finding.severity}, {finding.confidence}  {finding.rule}: {one_line(finding.title)}{since}\n")


def _call(command: str, finding: Finding, run: Path) -> None:
    """Run the user's command. What is wrong with it is said, and the watch goes on."""
    from tracelyze.diagnosis import INTERNAL
    from tracelyze.reports.escaping import json_text, one_line

    variables = {
        "RULE": finding.rule,
        "SEVERITY": finding.severity,
        "CONFIDENCE": finding.confidence,
        "TITLE": one_line(finding.title),
        "STEP": "" if finding.first_step is None else str(finding.first_step),
        "RUN": str(run),
    }
    environment = {**os.environ, **{f"TRACELYZE_{name}": value for name, value in variables.items()}}
    text = json_text({name: value for name, value in asdict(finding).items() if name not in INTERNAL})
    try:
        done = subprocess.run(  # noqa: S602  # it is the user's own command line
            command, shell=True, input=text, text=True, env=environment, timeout=_PAGER_SECONDS, check=False
        )
        if done.returncode:
            sys.stderr.write(f"tracelyze: --on-finding: exit status {done.returncode}\n")
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"tracelyze: --on-finding: {one_line(error)}\n")


def _now() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"
