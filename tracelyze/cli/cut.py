"""`tracelyze cut`: a stretch of a trace as a trace of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tracelyze.cli import progress
from tracelyze.cli.app import MaxGib, allow, app
from tracelyze.errors import Cause, InputError


@app.command(
    short_help="Cut a stretch out of a profiler trace, for Perfetto.",
    epilog="Exit status: 0 done, 2 the input or the call is wrong.",
)
def cut(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Profiler trace, or a run that holds one.")],
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="This step, as the report counts.")] = None,
    begin: Annotated[
        float | None, typer.Option("--from", metavar="US", help="First microsecond, as the events have it (ts).")
    ] = None,
    end: Annotated[float | None, typer.Option("--to", metavar="US", help="Last microsecond.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="A .json or .json.gz.")] = Path(
        "cut.json.gz"
    ),
    max_gib: MaxGib = None,
) -> None:
    """Write the events of one step, or of a stretch of time, as a trace that ui.perfetto.dev opens.

    Events stay as they are in TRACE. Those that touch the stretch are kept whole, with the launches of their kernels.
    The report prints this command beside each timeline.
    """
    from tracelyze.analyzers.kineto import cutting

    allow(max_gib)
    if (step is None) == (begin is None or end is None):
        raise InputError(Cause.WRONG_OPTION, "name the stretch: --step N, or --from US and --to US")
    if output.suffix not in (".json", ".gz"):
        raise InputError(Cause.UNKNOWN_FORMAT, f"cannot write {output}: a trace is a .json or a .json.gz")
    with progress.working(f"reading {trace}"):
        path = cutting.one_trace(trace)
        first, last = cutting.of_step(path, step) if step is not None else (float(begin or 0), float(end or 0))
        made = cutting.write(path, output, first, last)
    lost = f" {made.lost:,} could not be read." if made.lost else ""
    sys.stderr.write(f"wrote {output}: {made.kept:,} of {made.events:,} events.{lost} Open it at ui.perfetto.dev\n")
