"""`tracelyze import` and `tracelyze compact`: make and keep run directories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tracelyze import schema
from tracelyze.cli.app import CONTEXT, MaxGib, allow, app, emit
from tracelyze.errors import Cause, InputError

imports = typer.Typer(
    help="Turn what another program recorded into a run directory, to keep it.",
    short_help="Keep what others recorded as a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)
app.add_typer(imports, name="import", short_help="Keep what others recorded as a run.")

File = Annotated[Path, typer.Argument(metavar="PATH", help="What another program recorded: a file or a folder.")]
Run = Annotated[Path | None, typer.Argument(metavar="RUN", help="Run directory to make; or give it with -o.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="RUN", help="The same, as `collect` takes it.")]
Pattern = Annotated[
    str | None,
    typer.Option("--pattern", metavar="REGEX", help="Of a text log's lines, with (?P<step>...) and (?P<loss>...)."),
]


@imports.command("log", short_help="Import a log or a tracker's files.")
def import_log(file: File, run: Run = None, out: Out = None, pattern: Pattern = None) -> None:
    """Import what another program recorded; `diagnose` reads the same without keeping it.

    trainer_state.json, CSV and JSON lines, TensorBoard, Lightning, W&B, MLflow, Trackio, MLPerf, monitor.csv, console
    logs with a step and a loss in a line. `tracelyze import formats` lists them all.
    """
    from tracelyze.importing import recordings

    run = _one(run, out)
    _say(recordings.import_recording(file, run, pattern).words(), run)


@imports.command("tensorboard", short_help="Import scalars of TensorBoard.")
def import_tensorboard(file: File, run: Run = None, out: Out = None) -> None:
    """Import the scalars of a TensorBoard event file, or of a folder of them (as `import log` does)."""
    from tracelyze.importing import recordings

    run = _one(run, out)
    _say(recordings.import_recording(file, run).words(), run)


@imports.command("formats", short_help="List what can be read.")
def import_formats() -> None:
    """List what can be read, by `diagnose` too."""
    from tracelyze.importing import recordings

    emit("".join(f"{one}\n" for one in recordings.READABLE))


@imports.command("kineto", short_help="Import profiler traces.")
def import_kineto(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE... [RUN]", help="Traces (.json, .json.gz), or folders of them; RUN, or -o RUN."),
    ],
    out: Out = None,
    max_gib: MaxGib = None,
) -> None:
    """Import profiler traces (Kineto), one file per rank and window: they open much faster afterwards.

    Where RUN was recorded by `collect`, traces that the program's own profiler wrote meanwhile are added to it.
    """
    from tracelyze.analyzers.kineto.reading.importer import import_traces

    allow(max_gib)
    *given, last = traces
    run, traces = (out, traces) if out is not None else (_one(last if given else None, out), given)
    if _recorded(run):
        from tracelyze.analyzers.profiled import add_windows

        _say(add_windows(traces, run), run)
    else:
        _say(import_traces(traces, run), run)


@app.command(short_help="Tidy up what a killed program left behind.")
def compact(run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]) -> None:
    """Turn what a killed program left behind into Parquet files, as `diagnose` does by itself."""
    from tracelyze import analyzers

    analyzers.compact(run)


def _one(run: Path | None, out: Path | None) -> Path:
    """The run directory to make, given once: as the last argument, or with -o."""
    given = [one for one in (run, out) if one is not None]
    if len(given) != 1:
        why = "is given twice" if given else "is missing"
        raise InputError(Cause.WRONG_CALL, f"tracelyze import: RUN, the run directory to make, {why}; write -o RUN")
    return given[0]


def _recorded(run: Path) -> bool:
    """Whether a folder is a run that was recorded, not imported."""
    from tracelyze.analyzers.kineto import is_trace

    return (run / schema.RUN_FILE).is_file() and not is_trace(run)


def _say(summary: str, run: Path) -> None:
    sys.stderr.write(f"{summary}\nnext: tracelyze diagnose {run}\n")
