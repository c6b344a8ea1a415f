"""`tracelyze diagnose`: say what went wrong in a recorded run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracelyze.cli import PATH, ExitCode, allow, app, emit, max_gib
from tracelyze.errors import InputError

if TYPE_CHECKING:
    from tracelyze.config import Settings
    from tracelyze.diagnosis import Diagnosis

PAGE = "diagnosis.html"
WIDEST = 100  # columns: longer lines are hard to read
SEVERITIES = ("critical", "warning", "info")


@app.command(
    short_help="Say what went wrong in a run.",
    epilog="Exit status: 0 done, 1 --fail-on was reached, 2 the input or the call is wrong.",
)
@click.argument("run", type=PATH)
@click.option(
    "--format",
    "-f",
    type=click.Choice(["text", "json", "md", "html", "sarif"]),
    default="text",
    help="What to print on stdout.",
)
@click.option(
    "--output",
    "-o",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Also write .html, .md, .json, .sarif, .txt; repeatable.",
)
@click.option("--fail-on", type=click.Choice(SEVERITIES), help="Exit with 1 if a finding is at least this severe.")
@click.option("--select", multiple=True, metavar="ID,...", help="Only these rules, whatever is configured.")
@click.option("--ignore", multiple=True, metavar="ID,...", help="Leave these rules out.")
@click.option("--config", type=PATH, metavar="FILE", help="Instead of the nearest tracelyze.toml or pyproject.toml.")
@max_gib
@click.option("--no-html", is_flag=True, help=f"Do not write {PAGE}.")
def diagnose(
    run: Path,
    format: str,
    output: tuple[Path, ...],
    fail_on: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    config: Path | None,
    max_gib: float | None,
    no_html: bool,
) -> None:
    """Say what went wrong in RUN, since when, what it cost, and how to fix it.

    RUN is a run directory, or a profiler trace (.json, .json.gz, or a folder of them). Prints a summary and writes
    diagnosis.html into the run directory. With --format other than text, or with -o, only what was asked for is
    written.
    """
    from tracelyze import reports

    for file in output:
        reports.format_of(file)
    allow(max_gib)
    settings = _settings(config, _identifiers(select), _identifiers(ignore))
    page = not no_html and not output and format == "text"
    drawn = page or format == "html" or any(reports.format_of(file) == "html" for file in output)
    diagnosis = _diagnose(run, settings, picture=drawn)
    for file in output:
        reports.write(diagnosis, file)
        sys.stderr.write(f"wrote {file}\n")
    if format == "text":
        emit(_summary(diagnosis))
        if page:
            _write_page(diagnosis, run)
    else:
        emit(reports.render(diagnosis, "markdown" if format == "md" else format))
    if fail_on is not None and _reaches(diagnosis, fail_on):
        sys.exit(ExitCode.FINDINGS)


def _settings(config: Path | None, select: tuple[str, ...], ignore: tuple[str, ...]) -> Settings:
    """The configuration; --select takes the place of its `select`, --ignore adds to its `ignore`."""
    from dataclasses import replace

    from tracelyze import catalogue
    from tracelyze import config as configuration

    rules = catalogue.ThresholdNames()
    catalogue.check_ids(select, rules, "--select")
    catalogue.check_ids(ignore, rules, "--ignore")
    settings = configuration.load(config, Path.cwd(), rules)
    return replace(settings, select=select or settings.select, ignore=(*settings.ignore, *ignore))


def _diagnose(path: Path, settings: Settings, picture: bool) -> Diagnosis:
    """The diagnosis of a run directory or of profiler traces. One configuration serves both.

    `picture`: with what only a page shows, which reads a part of a trace twice.
    """
    from tracelyze import analyzers
    from tracelyze.analyzers import kineto

    traces = kineto.is_trace(path) or (path.exists() and not path.is_dir())  # which says why the file is none
    diagnose = kineto.diagnose_traces if traces else analyzers.diagnose
    return diagnose(
        path, select=settings.select, ignore=settings.ignore, thresholds=settings.thresholds, picture=picture
    )


def _identifiers(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for names in given for name in names.split(",") if name.strip())


def _summary(diagnosis: Diagnosis) -> str:
    from tracelyze.reports import text

    color = text.color_wanted(os.environ, sys.stdout.isatty())
    return text.render(diagnosis, color=color, width=min(shutil.get_terminal_size().columns, WIDEST))


def _write_page(diagnosis: Diagnosis, run: Path) -> None:
    """The report beside what it speaks of; where that cannot be written, in the current directory."""
    from tracelyze import reports

    name = run.resolve().name
    page = run / PAGE if run.is_dir() else run.with_name(f"{name}.{PAGE}")
    try:
        reports.write(diagnosis, page)
    except InputError as refused:
        page = Path(f"{name}.{PAGE}")
        sys.stderr.write(f"tracelyze: {refused}; writing {page} here instead\n")
        reports.write(diagnosis, page)
    emit(f"Report: {page}\n")


def _reaches(diagnosis: Diagnosis, bar: str) -> bool:
    return diagnosis.verdict in SEVERITIES[: SEVERITIES.index(bar) + 1]
