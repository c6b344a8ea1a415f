"""What to call one training of a run that made several: by its thread, and its place among those of its process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracelyze.diagnosis import Finding

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracelyze.analyzers.recorded.run import Process


def of(process: Process, threaded: Collection[Any]) -> str:
    """ "training 3 of 5", "thread fold-2", both, or nothing if the process made one training on one thread.

    `threaded`: process ids of programs in which several threads trained.
    """
    threads = process.facts.get("pid") in threaded
    thread = f"thread {process.facts.get('thread_name') or process.thread}" if threads else ""
    return ", ".join(part for part in (thread, process.training) if part)


def named(finding: Finding, name: str) -> Finding:
    """The finding with the training that it was made in, in the title if that does not name it already."""
    if not name:
        return finding
    title = finding.title if name in finding.title else f"{finding.title} ({name})"
    return replace(finding, title=title, trainings=[name])
