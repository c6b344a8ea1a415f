"""Adds to a finding what its process recorded about place and time: the lines around it, and the wall clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tracelyze.diagnosis import Excerpt, Finding, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def completed(finding: Finding, process: Process) -> Finding:
    """The finding with its excerpt and the wall time of its onset, as far as they were recorded."""
    excerpt = finding.excerpt or (excerpt_of(process, finding.location) if finding.location else None)
    return replace(finding, excerpt=excerpt, first_at=finding.first_at or wall_time(process, finding.first_second))


def excerpt_of(process: Process, location: Location) -> Excerpt | None:
    """The recorded lines around a location; None where they were not recorded."""
    for row in process.sites.records():
        first, text = row["excerpt_line"], row["excerpt"]
        if first and text and (row["file"], row["line"]) == (location.file, location.line):
            return Excerpt(int(first), str(text).split("\n"))
    return None


def wall_time(process: Process, seconds: float | None) -> str | None:
    """When it was `seconds` on the process's clock: ISO 8601 in UTC, to the second."""
    clock = process.facts.get("clock")
    zero = clock.get("zero") if isinstance(clock, dict) else None
    if seconds is None or not isinstance(zero, int | float):
        return None
    try:
        return datetime.fromtimestamp(zero + seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):  # a damaged manifest may hold any number
        return None
