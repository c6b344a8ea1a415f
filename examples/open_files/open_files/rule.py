"""open-file-leak: the process opens files and does not close them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding


def check(process: Process, limits: Limits) -> Outcome:
    """Open files that rise in every quarter of the run, and how many more there are at its end."""
    rows = [row for row in process.tables["scalars"].records() if row["name"] == "open files"]
    counts = np.array([row["value"] for row in rows], dtype=float)
    if len(counts) < limits["samples"]:
        return Skipped(f"open files were counted {len(counts)} times; {limits['samples']:.0f} are needed", "needs-more")
    levels = [float(np.median(quarter)) for quarter in np.array_split(counts, 4)]
    grown = levels[-1] - levels[0]
    if grown < limits["files"] or not all(late > early for early, late in pairwise(levels)):
        return Passed(f"open files stayed between {counts.min():.0f} and {counts.max():.0f}")
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="likely",
            title=f"Files are opened and never closed: {grown:.0f} more at the end than at the start",
            summary=(
                f"The process held {levels[0]:.0f} files open at first and {levels[-1]:.0f} at the end, and their "
                "number rose all the time. The system refuses the next one at its limit (`ulimit -n`, often 1,024): "
                "then the training dies with 'Too many open files'."
            ),
            fix="Close files where they are opened, in the data set above all.",
            fix_code="with open(path, 'rb') as file:\n    data = file.read()",
            first_step=int(rows[0]["step"]) + 1,
            evidence=[Evidence("open files more at the end", grown, "files", *limits.against("files"))],
            false_alarm="A data set that keeps one file a shard open, and has not met all shards yet.",
        )
    ]


RULE = Rule(
    id="open-file-leak",
    family="memory",
    severity="warning",
    title="Files are opened and never closed",
    about="Each file that stays open takes a descriptor, of which a process has a fixed number.",
    check=check,
    verify="Record the run again: the number of open files stays level.",
    absent="Open files were not counted.",
    needs=(("scalars.value",),),
    thresholds=(
        Threshold("samples", 8, "samples", "two for each quarter of the run"),
        Threshold("files", 50, "files", "measured: a DataLoader with 8 workers opens 34 at its first epoch"),
    ),
    not_when="Files that are opened once: shards, workers, logs.",
)
