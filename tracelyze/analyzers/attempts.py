"""Attempts of an elastic launcher: the last one is the run; those before it died and were restarted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.recorded import deaths as dying
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracelyze.analyzers.recorded.run import Process, Run
    from tracelyze.analyzers.rule import Outcome, Rule
    from tracelyze.diagnosis import Finding


def split(run: Run) -> tuple[Run, list[list[Process]]]:
    """The run with the processes of each launcher's last attempt, and what was restarted: processes by attempt."""
    last: dict[str, int] = defaultdict(int)
    for process in run.processes:
        last[_launcher(process)] = max(last[_launcher(process)], process.attempt)
    earlier: dict[tuple[str, int], list[Process]] = defaultdict(list)
    kept = []
    for process in run.processes:
        if process.attempt == last[_launcher(process)]:
            kept.append(process)
        else:
            earlier[_launcher(process), process.attempt].append(process)
    if not earlier:
        return run, []
    attempts = [earlier[key] for key in sorted(earlier)]
    notes = [note for note in run.notes if any(note in process.notes for process in kept)]
    return replace(run, processes=kept, notes=notes + [_note(attempt) for attempt in attempts]), attempts


def deaths(
    attempts: Sequence[list[Process]], rules: Sequence[Rule], judge: Callable[[Rule, Process], Outcome]
) -> Iterator[tuple[Rule, Process, Outcome]]:
    """What the rules about a program's end say of the process that died first in each attempt, as warnings."""
    for attempt in attempts:
        process = _first_dead(attempt)
        for rule in rules:
            outcome = judge(rule, process) if rule.family == "end of run" else None
            if isinstance(outcome, list):
                yield rule, process, [_restarted(finding, process.attempt) for finding in outcome]


def _restarted(finding: Finding, attempt: int) -> Finding:
    return replace(
        finding,
        severity="warning",
        title=f"Attempt {attempt} was restarted: {finding.title[:1].lower()}{finding.title[1:]}",
        summary=f"{finding.summary} The launcher restarted it; what follows judges the last attempt.",
    )


def _launcher(process: Process) -> str:
    """What an attempt is one of; where the record does not name the launch, the attempts of a rank."""
    return str(process.facts.get("launcher") or f"rank {process.rank}")


def _first_dead(attempt: list[Process]) -> Process:
    """The process whose death ended the attempt: the launcher and the broken connections take the others along."""
    first = dying.first(attempt)
    return attempt[0] if first is None else first.process


def _note(attempt: list[Process]) -> str:
    process = _first_dead(attempt)
    how = process.exit.detail or process.exit.kind
    return (
        f"attempt {process.attempt} ({plural(len(attempt), 'process')}) was restarted: rank {process.rank} "
        f"ended first, after {plural(len(process.steps), 'step')} ({how})"
    )
