"""Attempts of an elastic launcher: the last one is the run; those before it died and were restarted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.recorded import deaths as dying
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.ranks.source import Head
    from tracelyze.analyzers.ranks.summary import Found, Summary
    from tracelyze.diagnosis import Finding


def split(heads: Sequence[Head]) -> tuple[list[Head], list[list[Head]]]:
    """The processes of each launcher's last attempt, and what was restarted: processes by attempt."""
    last: dict[str, int] = defaultdict(int)
    for head in heads:
        last[head.launcher] = max(last[head.launcher], head.attempt)
    earlier: dict[tuple[str, int], list[Head]] = defaultdict(list)
    for head in heads:
        if head.attempt != last[head.launcher]:
            earlier[head.launcher, head.attempt].append(head)
    return [head for head in heads if head.attempt == last[head.launcher]], [earlier[key] for key in sorted(earlier)]


def deaths(attempt: Sequence[Summary]) -> dict[str, list[Found]]:
    """What the rules about a program's end say of the process that died first in an attempt, as warnings, by rule."""
    first = _first_dead(attempt)
    return {
        rule: [replace(one, finding=_restarted(one.finding, first.attempt)) for one in found]
        for rule, found in first.found.items()
    }


def note(attempt: Sequence[Summary]) -> str:
    """A sentence about an attempt that was restarted."""
    first = _first_dead(attempt)
    how = first.exit.detail or first.exit.kind
    return (
        f"attempt {first.attempt} ({plural(len(attempt), 'process')}) was restarted: rank {first.rank} "
        f"ended first, after {plural(first.rows, 'step')} ({how})"
    )


def _restarted(finding: Finding, attempt: int) -> Finding:
    return replace(
        finding,
        severity="warning",
        title=f"Attempt {attempt} was restarted: {finding.title[:1].lower()}{finding.title[1:]}",
        summary=f"{finding.summary} The launcher restarted it; what follows judges the last attempt.",
    )


def _first_dead(attempt: Sequence[Summary]) -> Summary:
    """The process whose death ended the attempt: the launcher and the broken connections take the others along."""
    first = dying.first(one.facts.death for one in attempt if one.facts.death is not None)
    return next((one for one in attempt if one.facts.death is first), attempt[0])
