"""`tracelyze fleet`: judge every run below folders and buckets, and write one table."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from tracelyze.cli.app import app, emit
from tracelyze.cli.diagnose import PAGE
from tracelyze.formatting import plural

if TYPE_CHECKING:
    import pyarrow as pa

    from tracelyze.fleet.summary import Summary

_SILENCE = 10.0  # seconds between two lines where stderr is no terminal
_SHOWN = 10  # root causes that are printed; the page and the table hold all


@app.command(
    short_help="Judge all runs below a folder or bucket.",
    epilog="Exit status: 0 done, also where some runs could not be judged; 2 the input or the call is wrong.",
)
def fleet(
    places: Annotated[
        list[str], typer.Argument(metavar="URI...", help="Folders with runs below them, or s3://, gs://, az://.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The table: .parquet, .arrow, .feather or .csv.")
    ] = Path("fleet.parquet"),
    no_html: Annotated[bool, typer.Option("--no-html", help="Do not write a page beside the table.")] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="Processes here.  [default: one a core]")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="The most that one run may take.")
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Judge on a Ray cluster; needs tracelyze[ray].")] = False,
    num_cpus: Annotated[float, typer.Option("--num-cpus", metavar="N", help="CPUs of a Ray task.")] = 1.0,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", min=1, help="The most Ray tasks at a time.")
    ] = None,
) -> None:
    """Judge every run below URI... and write one table: a row for each check of each run.

    Also writes a page beside the table: what goes wrong most, what it costs, in which runs, since which commit or host.
    A run that cannot be judged is a row with the status "error".
    """
    from tracelyze import fleet as fleets
    from tracelyze import reports
    from tracelyze.catalogue import entries as catalogue
    from tracelyze.fleet import discovery, local, page, ray_cluster, summary, writing
    from tracelyze.subprocesses import cores

    writing.check(output)
    runs = discovery.runs_below(places)
    if ray:
        judged = ray_cluster.judge(runs, num_cpus=num_cpus, concurrency=concurrency)
    else:
        judged = local.judge(runs, workers or cores(), timeout)
    table = fleets.joined(_counted(judged, len(runs)))
    writing.write(table, output)
    found = summary.summarise(table)
    titles = {entry.id: entry.title for entry in catalogue.entries()}
    emit(_text(found, titles) + f"Table: {output}\n")
    if not no_html:
        pages = _pages(runs, output.parent)
        emit(f"Page: {reports.store(page.render(found, titles, pages), output.with_suffix('.html'))}\n")


def _counted(judged: Iterator[tuple[int, pa.Table]], count: int) -> Iterator[tuple[int, pa.Table]]:
    """The same, and on stderr how far it is: one line on a terminal, elsewhere a line every now and then."""
    terminal, said = sys.stderr.isatty(), time.monotonic()
    sys.stderr.write(f"judging {plural(count, 'run')}" + ("" if terminal else "\n"))
    for done, one in enumerate(judged, 1):
        if terminal:
            sys.stderr.write(f"\r{done:,} of {count:,} runs judged" + ("\n" if done == count else ""))
        elif time.monotonic() > said + _SILENCE:
            said = time.monotonic()
            sys.stderr.write(f"{done:,} of {count:,} runs judged\n")
        sys.stderr.flush()
        yield one


def _pages(runs: Iterable[str], folder: Path) -> dict[str, str]:
    """The report of each run on this machine that has one, as a link from a page in `folder`."""
    found = {}
    for run in runs:
        report = Path(run) / PAGE
        if "://" not in run and report.is_file():
            found[run] = quote(os.path.relpath(report, folder))
    return found


def _text(found: Summary, titles: Mapping[str, str]) -> str:
    from tracelyze.fleet.page import headline
    from tracelyze.formatting import duration
    from tracelyze.reports.escaping import one_line

    lines = [headline(found), ""]
    for fault in found.faults[:_SHOWN]:
        lost = "" if fault.seconds is None else f", {duration(fault.seconds)} lost"
        since = (
            f"; since {one_line(fault.since)}" if fault.since else f"; {one_line(fault.where)}" if fault.where else ""
        )
        runs = f"{len(fault.runs):,} of {fault.judged:,} checked"
        title = f"{titles[fault.rule]} ({fault.rule})" if fault.rule in titles else fault.rule
        lines.append(f"  {fault.severity:8}  {title}: {runs}{lost}{since}")
    lines += [f"  error     {one_line(run)}: {one_line(reason)}" for run, reason in found.errors[:_SHOWN]]
    return "\n".join(lines) + "\n\n"
