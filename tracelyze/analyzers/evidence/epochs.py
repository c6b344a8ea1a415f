"""A log that has one row for each epoch: what is said of its steps is said of epochs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Chart, Evidence, Finding

_BEFORE: Final = r"after|at|from|in|of all|one|every|each|first|last|that|later|earlier|final|logged"
_COUNTED: Final = re.compile(
    rf"(?P<number>(?:\d|\b(?:{_BEFORE}))\s)(?P<step>[Ss]teps?)\b(?!\()|\b(?P<alone>[Ss]teps?)(?=\s\d)", re.IGNORECASE
)


def are_counted(process: Process) -> bool:
    """Whether the numbers of the log's steps are those of its epochs."""
    source = process.facts.get("source")
    return isinstance(source, dict) and source.get("counts") == "epochs"


def in_words(text: str) -> str:
    """A sentence in which steps that have a number, or are counted, are epochs; those of an optimizer stay."""
    return _COUNTED.sub(lambda found: f"{found['number'] or ''}{_epoch(found['step'] or found['alone'])}", text)


def worded(finding: Finding, process: Process) -> Finding:
    """The finding in words of epochs, where the log has no steps."""
    if not are_counted(process):
        return finding
    return replace(
        finding,
        title=in_words(finding.title),
        summary=in_words(finding.summary),
        evidence=[_evidence(one) for one in finding.evidence],
        charts=[over_epochs(one) for one in finding.charts],
        counts="epoch",
    )


def over_epochs(chart: Chart) -> Chart:
    """The chart with epochs below it, in place of steps."""
    return replace(chart, x_label=_epoch(chart.x_label)) if chart.over == "steps" else chart


def _evidence(one: Evidence) -> Evidence:
    value = in_words(one.value) if isinstance(one.value, str) else one.value
    return replace(one, name=in_words(one.name), value=value, unit=_epoch(one.unit) if "step" in one.unit else one.unit)


def _epoch(word: str) -> str:
    return word.replace("step", "epoch").replace("Step", "Epoch")
