"""`tracelyze compare`: say what changed between two runs or two traces."""

from __future__ import annotations

import os
import re
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tracelyze.cli.app import ExitCode, app, emit
from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from tracelyze.comparison import Comparison

WIDEST = 110  # columns: tables have six
BAR = re.compile(r"^(?P<what>slower|memory|new)(?::(?P<limit>[\w.]+)\s*%?)?$")


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"
    markdown = "markdown"
    md = "md"
    html = "html"


class Bar(NamedTuple):
    """One --fail-on: `share` of A for slower and memory, `severity` for new findings."""

    what: str
    share: float = 0.0
    severity: str = "info"


@app.command(
    short_help="Say what changed between two runs.",
    epilog="Exit status: 0 done, 1 --fail-on was reached, 2 the input or the call is wrong.",
)
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Before: run directory, profiler trace, or folder of traces.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="After: the same kind of thing.")],
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print on stdout.")] = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also write .html, .md, .json, .txt; repeatable."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="WHAT",
            help="Exit with 1 if B is slower (slower:10%), takes more memory (memory:10%) or has a finding that A "
            "does not have (new, new:warning); repeatable.",
        ),
    ] = None,
) -> None:
    """Say what got slower or faster from A to B, by cause, operator and kernel, and what findings and settings differ.

    A difference within the spread over the steps is said to be noise, and fails nothing.
    """
    from tracelyze.analyzers.comparing import compare as compare_paths
    from tracelyze.reports import comparison as reports

    bars = [_bar(text) for text in fail_on or []]
    files = output or []
    for file in files:
        reports.format_of(file)
    found = compare_paths(a, b)
    for file in files:
        reports.write(found, file)
        sys.stderr.write(f"wrote {file}\n")
    if format is Format.text:
        emit(_summary(found))
    else:
        emit(reports.render(found, "markdown" if format is Format.md else format.value))
    if any(_reached(found, bar) for bar in bars):
        raise typer.Exit(ExitCode.FINDINGS)


def _summary(comparison: Comparison) -> str:
    from tracelyze.reports.comparison import text
    from tracelyze.reports.text import color_wanted

    color = color_wanted(os.environ, sys.stdout.isatty())
    return text.render(comparison, color=color, width=min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST))


def _bar(text: str) -> Bar:
    match = BAR.match(text.strip())
    if match is None:
        raise InputError(
            Cause.WRONG_OPTION, f"--fail-on {text}: use slower, slower:10%, memory:10%, new or new:warning"
        )
    what, limit = match["what"], match["limit"]
    if what == "new":
        if limit not in (None, "critical", "warning", "info"):
            raise InputError(
                Cause.WRONG_OPTION, f"--fail-on {text}: {limit} is no severity; use critical, warning or info"
            )
        return Bar(what, severity=limit or "info")
    try:
        return Bar(what, float(limit or 0) / 100)
    except ValueError:
        raise InputError(
            Cause.WRONG_OPTION, f"--fail-on {text}: {limit} is no number of percent, as in {what}:10%"
        ) from None


def _reached(comparison: Comparison, bar: Bar) -> bool:
    if bar.what == "slower":
        return comparison.verdict == "slower" and (comparison.ratio or 1.0) - 1 >= bar.share
    if bar.what == "memory":
        rows = [one for one in comparison.section("recorded") if one.key == "memory" and one.before]
        return any(one.significance == "more" and one.difference >= bar.share * (one.before or 0) for one in rows)
    from tracelyze.diagnosis import at_least

    return any(one.fate == "new" and at_least(one.severity, bar.severity) for one in comparison.findings)
