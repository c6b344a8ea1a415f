"""The table of a fleet: one row for every rule that was asked about every run, and one for a run that no rule could be.

Long form, so that a query needs no knowledge of the rules: `WHERE status = 'fired' GROUP BY rule`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tracelyze.diagnosis import Check, Diagnosis, Finding

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "run": ("string", "path or URI of the run, as it was found"),
    "rule": ("string", "the check; null in the row of a run that could not be judged"),
    "status": ("string", "fired, passed, skipped; error: the run could not be judged"),
    "severity": ("string", "critical, warning or info, where the check fired"),
    "confidence": ("string", "certain, likely or possible, where the check fired"),
    "title": ("string", "what is wrong, in a line"),
    "reason": ("string", "why the check passed, was skipped, or the run could not be judged"),
    "caused_by": ("string", "the rule whose finding explains this one; null for a root cause"),
    "first_step": ("int64", "step at which it began"),
    "last_step": ("int64", "last step that shows it"),
    "seconds_lost": ("float64", "what it cost, in seconds of the run"),
    "share_lost": ("float64", "the same as a share of the run, 0 to 1"),
    "file": ("string", "file of the program that the finding points to"),
    "line": ("int64", "line in that file"),
    "ranks": ("list<int64>", "ranks that show it"),
    "verdict": ("string", "the run's verdict, repeated in each of its rows"),
    "started_at": ("string", "when the run began, ISO 8601"),
    "run_seconds": ("float64", "how long it was recorded"),
    "steps": ("int64", "steps of its longest training"),
    "host": ("string", "machine of its first process"),
    "commit": ("string", "git commit that the program was started from"),
    "exit": ("string", "how the program ended: finished, exception, signal, vanished, running, ..."),
}
"""Type and meaning of every column."""


def rows_of(run: str, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """One row per check of the diagnosis; a rule with several findings has one row for each."""
    facts = diagnosis.run
    about = {
        "run": run,
        "verdict": diagnosis.verdict,
        "started_at": facts.started_at,
        "run_seconds": facts.duration_s,
        "steps": facts.steps,
        "host": facts.environment.get("host") or facts.environment.get("hostname"),
        "commit": facts.commit or None,
        "exit": facts.exit.kind,
    }
    rows = []
    for check in diagnosis.checks:
        found = [finding for finding in diagnosis.findings if finding.rule == check.rule]
        values_of_each = [_finding(finding) for finding in found] if check.status == "fired" else [_silent(check)]
        rows += [_row({**about, "rule": check.rule, "status": check.status, **values}) for values in values_of_each]
    return rows


def error_row(run: str, reason: str) -> dict[str, Any]:
    """The row of a run that could not be judged."""
    return _row({"run": run, "status": "error", "reason": reason})


def arrow_schema() -> pa.Schema:
    """The schema of the table, with the meaning of every column in its metadata."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "list<int64>": pa.list_(pa.int64()),
    }
    return pa.schema(
        [pa.field(name, types[kind], metadata={"meaning": meaning}) for name, (kind, meaning) in COLUMNS.items()]
    )


def to_arrow(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The rows as an Arrow table of :func:`arrow_schema`."""
    import pyarrow as pa

    return pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema())


def _finding(finding: Finding) -> dict[str, Any]:
    cost, location = finding.cost, finding.location
    return {
        "severity": finding.severity,
        "confidence": finding.confidence,
        "title": finding.title,
        "caused_by": finding.caused_by,
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "seconds_lost": cost.seconds if cost else None,
        "share_lost": cost.share if cost else None,
        "file": location.file if location else None,
        "line": location.line if location else None,
        "ranks": list(finding.ranks),
    }


def _silent(check: Check) -> dict[str, Any]:
    return {"reason": check.reason}


def _row(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values.get(name) for name in COLUMNS}
