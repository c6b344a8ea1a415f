"""`tracelyze diagnose`: say what went wrong in a recorded run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracelyze import schema
from tracelyze.cli import progress, several_runs
from tracelyze.cli.app import ExitCode, MaxGib, allow, app, emit
from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from tracelyze.config import Settings
    from tracelyze.diagnosis import Diagnosis

PAGE = "diagnosis.html"
WIDEST = 80  # columns: longer lines are hard to read


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"
    markdown = "markdown"
    md = "md"
    html = "html"
    sarif = "sarif"
    junit = "junit"


class FailOn(StrEnum):
    """What --fail-on takes: severities, the worst first, and a verdict of which nothing is known."""

    critical = "critical"
    warning = "warning"
    info = "info"
    unknown = "unknown"


@app.command(
    short_help="Say what went wrong in a run.",
    epilog="Exit status: 0 done, 1 --fail-on was reached, 2 the input or the call is wrong.",
)
def diagnose(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PATH]",
            help="Run directory, a folder of runs, trace, or what another program recorded: a log, a tracker's "
            "folder.  [default: the newest run in runs/]",
        ),
    ] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print on stdout.")] = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Also write .html, .md, .json, .sarif, .xml, .txt; repeatable."
        ),
    ] = None,
    fail_on: Annotated[
        list[FailOn] | None,
        typer.Option(
            "--fail-on",
            help="Exit with 1 if a finding is at least this severe; unknown: if nothing could be checked; repeatable.",
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="ID,...", help="Only these rules, whatever is configured.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="ID,...", help="Leave these rules out.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Instead of the nearest tracelyze.toml or pyproject.toml."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Of a text log's lines, with (?P<step>...) and (?P<loss>...)."),
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--beside",
            metavar="FILE",
            help="dmesg or journalctl -k, output of a SLURM job, py-spy dump, or a folder of them: they say why a job "
            "ended or hangs; repeatable.  [also read: PATH/beside/]",
        ),
    ] = None,
    max_gib: MaxGib = None,
    no_html: Annotated[bool, typer.Option("--no-html", help=f"Do not write {PAGE}.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Markdown without a fold.")] = False,
) -> None:
    """Say what went wrong in PATH, since when, what it cost, and how to fix it.

    It finds out what PATH is. Prints a summary and writes diagnosis.html into the folder, or beside the file. With
    --format other than text, or with -o, only what was asked for is written. A folder of runs is listed with their
    verdicts.
    """
    wanted = _Wanted(format, output or [], no_html, full)
    wanted.must_be_possible()
    allow(max_gib)
    settings = _settings(config, _identifiers(select), _identifiers(ignore))
    if run is None:
        run = several_runs.newest()
        several_runs.say_which(run)
    else:
        run = several_runs.whole(run)
    if several_runs.runs_in(run) and not (run / schema.RUN_FILE).is_file():
        if beside:
            raise InputError(Cause.WRONG_OPTION, f"{run}: --beside goes with one run; name one of these")
        found = _list(run, settings, wanted)
    else:
        with progress.working(f"reading {run}"):
            found = [_as_configured(run, settings, wanted.drawn, pattern, beside or [])]
        _write(found[0], run, wanted)
    if any(_reaches(diagnosis, bar) for diagnosis in found for bar in fail_on or []):
        raise typer.Exit(ExitCode.FINDINGS)


@dataclass(frozen=True)
class _Wanted:
    """What is to be written of a diagnosis: `format` to stdout, `files`, and by default a page."""

    format: Format
    files: Sequence[Path]
    no_html: bool
    full: bool

    @property
    def page(self) -> bool:
        """Whether the page is written that nobody has to ask for."""
        return not self.no_html and not self.files and self.format is Format.text

    @property
    def drawn(self) -> bool:
        """Whether anything shows what only a page shows."""
        from tracelyze import reports

        return self.page or self.format is Format.html or any(reports.format_of(file) == "html" for file in self.files)

    def must_be_possible(self) -> None:
        """InputError if the ending of a file names no format."""
        from tracelyze import reports

        for file in self.files:
            reports.format_of(file)


def _write(diagnosis: Diagnosis, run: Path, wanted: _Wanted) -> None:
    """The files first, then what goes to stdout, then the page."""
    from tracelyze import reports

    for file in wanted.files:
        reports.write(diagnosis, file, wanted.full)
        sys.stderr.write(f"wrote {file}\n")
    if wanted.format is Format.text:
        emit(_summary(diagnosis))
    else:
        form = "markdown" if wanted.format is Format.md else wanted.format.value
        emit(reports.render(diagnosis, form, wanted.full))
    if wanted.page:
        _write_page(diagnosis, run)


def _list(folder: Path, settings: Settings, wanted: _Wanted) -> list[Diagnosis]:
    """The diagnoses of a folder of runs, written as text: one line a run."""
    if wanted.files or wanted.format is not Format.text:
        raise InputError(
            Cause.WRONG_OPTION,
            f"{folder}: a folder of runs is listed as text only; name one of its runs, or use tracelyze fleet",
        )
    with progress.working(f"reading the runs in {folder}"):
        text, found = several_runs.listed(folder, lambda run: _as_configured(run, settings, False, None))
    emit(text)
    return found


def _settings(config: Path | None, select: tuple[str, ...], ignore: tuple[str, ...]) -> Settings:
    """The configuration; --select takes the place of its `select`, --ignore adds to its `ignore`."""
    from tracelyze import config as configuration
    from tracelyze.catalogue import entries as catalogue

    rules = catalogue.ThresholdNames()
    catalogue.check_ids(select, rules, "--select")
    catalogue.check_ids(ignore, rules, "--ignore")
    settings = configuration.load(config, Path.cwd(), rules)
    return replace(settings, select=select or settings.select, ignore=(*settings.ignore, *ignore))


def _as_configured(
    path: Path, settings: Settings, picture: bool, pattern: str | None, beside: Sequence[Path] = ()
) -> Diagnosis:
    """The diagnosis of whatever lies at `path`. One configuration serves all of it.

    `picture`: with what only a page shows, which reads a part of a trace twice.
    """
    from tracelyze import api

    diagnosis = api.diagnose(
        path,
        select=settings.select,
        ignore=settings.ignore,
        thresholds=settings.thresholds,
        picture=picture,
        pattern=pattern,
        beside=beside,
    )
    return replace(diagnosis, docs_url=settings.docs_url)


def _identifiers(given: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for names in given or [] for name in names.split(",") if name.strip())


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


def _reaches(diagnosis: Diagnosis, bar: FailOn) -> bool:
    if bar is FailOn.unknown:
        return diagnosis.verdict == "unknown"
    from tracelyze.diagnosis import at_least

    return any(at_least(finding.severity, bar.value) for finding in diagnosis.findings)
