"""`tracelyze import` and `tracelyze compact`: make and keep run directories."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tracelyze.cli import PATH, Commands, allow, app, max_gib


@app.group("import", cls=Commands, no_args_is_help=True)
def imports() -> None:
    """Turn a log or trace made elsewhere into a run directory."""


@imports.command("log", short_help="Import trainer_state.json, or a CSV or JSONL log.")
@click.argument("file", type=PATH)
@click.argument("run", type=PATH)
def import_log(file: Path, run: Path) -> None:
    """Make the run directory RUN from the log FILE: trainer_state.json, or CSV or JSONL.

    The columns are such as step, loss, grad_norm, lr, val_loss.
    """
    from tracelyze.collectors import logs

    _say(logs.import_log(file, run), run)


@imports.command("tensorboard", short_help="Import TensorBoard event files.")
@click.argument("file", type=PATH)
@click.argument("run", type=PATH)
def import_tensorboard(file: Path, run: Path) -> None:
    """Make the run directory RUN from the scalars of a TensorBoard event FILE, or of a folder of them."""
    from tracelyze.collectors import tensorboard

    _say(tensorboard.import_events(file, run), run)


@imports.command("kineto", short_help="Import profiler traces (Kineto).")
@click.argument("traces", metavar="TRACE...", type=PATH, nargs=-1, required=True)
@click.argument("run", type=PATH)
@max_gib
def import_kineto(traces: tuple[Path, ...], run: Path, max_gib: float | None) -> None:
    """Make the run directory RUN from profiler traces (.json, .json.gz, folders of them), one per rank and window.

    They open much faster afterwards.
    """
    from tracelyze.analyzers.kineto.importer import import_traces

    allow(max_gib)
    _say(import_traces(traces, run), run)


@app.command(short_help="Tidy up what a killed program left behind.")
@click.argument("run", type=PATH)
def compact(run: Path) -> None:
    """Turn what a killed program left behind in RUN into Parquet files, as `diagnose` does by itself."""
    from tracelyze import analyzers

    analyzers.load(run)


def _say(summary: str, run: Path) -> None:
    sys.stderr.write(f"{summary}\nnext: tracelyze diagnose {run}\n")
