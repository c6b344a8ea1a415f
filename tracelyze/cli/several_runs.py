"""Finding runs: the newest one below runs/, and a folder of runs as a list with their verdicts."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracelyze import formatting, schema
from tracelyze.errors import Cause, InputError
from tracelyze.run_parts import whole_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.diagnosis import Diagnosis

RUNS: Final = Path("runs")
"""Where `collect` puts runs by default."""

_WORDS: Final = {
    "critical": "✖ critical",
    "warning": "▲ warning",
    "info": "● note",
    "ok": "✔ ok",
    "unknown": "? unknown",
}
_WIDTH: Final = 80


def newest(here: Path = Path()) -> Path:
    """The run that was started last: in runs/, else in the folder `here` if that holds runs, or else the run that it is
    or belongs to. InputError if there is none."""
    found = runs_in(here / RUNS) or runs_in(here)
    if not found and ((here / schema.RUN_FILE).is_file() or whole_run(here) != here):
        return whole_run(here)
    if not found:
        raise InputError(
            Cause.NO_RUN_FOUND,
            f"{here / RUNS}: no run is here; record one with tracelyze collect -- python train.py, or name "
            "what to diagnose",
        )
    return max(found, key=lambda run: ((run / schema.RUN_FILE).stat().st_mtime, run.name))


def runs_in(folder: Path) -> list[Path]:
    """The run directories directly in a folder, by name; none if it is no folder."""
    try:
        return sorted(entry for entry in folder.iterdir() if (entry / schema.RUN_FILE).is_file())
    except OSError:
        return []


def listed(folder: Path, judge: Callable[[Path], Diagnosis]) -> tuple[str, list[Diagnosis]]:
    """The runs of a folder as lines with verdict, steps and first finding; a run that cannot be read says why."""
    from tracelyze.reports import escaping

    rows: list[tuple[str, str, str, str]] = []
    found: list[Diagnosis] = []
    for run in runs_in(folder):
        try:
            diagnosis = judge(run)
        except InputError as error:
            rows.append((run.name, "- unreadable", "", str(error)))
            continue
        found.append(diagnosis)
        roots = [finding.title for finding in diagnosis.roots()]
        more = f" (and {len(roots) - 1} more)" if len(roots) > 1 else ""
        said = roots[0] + more if roots else diagnosis.verdict_reason
        rows.append((run.name, _WORDS[diagnosis.verdict], formatting.plural(diagnosis.run.steps, "step"), said))
    name = max((len(row[0]) for row in rows), default=0)
    lines = []
    for run_name, verdict, steps, said in rows:
        line = f"{escaping.one_line(run_name):<{name}}  {verdict:<12} {steps:>12}"
        lines.append(line.rstrip())
        if said:
            wrapped = textwrap.wrap(escaping.one_line(said), _WIDTH - 4, max_lines=2, placeholder=" …")
            lines += [f"    {line}" for line in wrapped]
    return "\n".join(lines) + "\n", found


def say_which(run: Path) -> None:
    """Says on stderr which run was chosen."""
    why = f", the newest run in {run.parent}" if run.name else ", the run in this folder"
    sys.stderr.write(f"diagnosing {run}{why}\n")


def whole(path: Path) -> Path:
    """The run that a part of it belongs to, which is said on stderr; else the path itself."""
    run = whole_run(path)
    if run != path:
        sys.stderr.write(f"diagnosing {run}, the run that {path} belongs to\n")
    return run
