"""What to call one training of a run that made several: by its thread, and its place among those of its process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers import context
from tracelyze.diagnosis import Cost, Finding

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


def in_process(finding: Finding, process: Process, threaded: Collection[Any]) -> Finding:
    """The finding with the name of the training that was judged; of a process that was judged as a whole, of the only
    one of its trainings that the finding is about."""
    name = of(process, threaded)
    only = finding.trainings[0] if len(finding.trainings) == 1 else ""
    if not process.training and any(only == one.training for one in process.trainings):
        name = ", ".join(part for part in (name, only) if part)
    return named(finding, name)


def named(finding: Finding, name: str) -> Finding:
    """The finding with the training that it was made in, in the title if that does not name it already.

    A title that is too long with it loses something else: which training it was is what the reader looks for. The time
    that was lost is part of the time of that training.
    """
    if not name:
        return finding
    most = max(context.LONGEST_TITLE - len(f" ({name})"), context.LONGEST_TITLE // 2)
    title = finding.title if name in finding.title else f"{context.cut_to(finding.title, most)} ({name})"
    cost = finding.cost
    if cost is not None and cost.of == Cost.of and "training " in name:
        cost = replace(cost, of="the time of this training")
    return replace(finding, title=title, trainings=[name], cost=cost)
