"""What became of the findings of one diagnosis in another."""

from __future__ import annotations

from typing import Final

from tracelyze.comparison import FATES, Fate, FindingChange
from tracelyze.diagnosis import Diagnosis, Finding, severity_rank

NOTABLE: Final = 0.05
"""Share of the time by which the cost of a finding must move before it counts as better or worse: what all trace
rules take for the least that is worth a change."""


def finding_changes(before: Diagnosis, after: Diagnosis) -> list[FindingChange]:
    """Every finding of either side, and whether it is new, worse, the same, better or fixed.

    A finding is only fixed, or new, if the other side was able to make that check.
    """
    olds, news = ({finding.rule: finding for finding in side.findings} for side in (before, after))
    changes = [_change(rule, olds.get(rule), news.get(rule), before, after) for rule in dict.fromkeys((*news, *olds))]
    return sorted(changes, key=lambda change: (FATES.index(change.fate), severity_rank(change.severity)))


def _change(rule: str, old: Finding | None, new: Finding | None, before: Diagnosis, after: Diagnosis) -> FindingChange:
    shown = new or old
    assert shown is not None
    return FindingChange(
        rule, _fate(rule, old, new, before, after), shown.title, shown.severity, _share(old), _share(new)
    )


def _fate(rule: str, old: Finding | None, new: Finding | None, before: Diagnosis, after: Diagnosis) -> Fate:
    if old is None:
        return "new" if _was_checked(before, rule) else "unknown"
    if new is None:
        return "fixed" if _was_checked(after, rule) else "unknown"
    graver = severity_rank(old.severity) - severity_rank(new.severity)
    more = (_share(new) or 0.0) - (_share(old) or 0.0)
    if abs(more) >= NOTABLE:
        return "worse" if more > 0 else "better"
    return "worse" if graver > 0 else "better" if graver < 0 else "same"


def _was_checked(diagnosis: Diagnosis, rule: str) -> bool:
    """Whether the check was made, or does not apply: what is not there at all is not at fault either."""
    checks = [check for check in diagnosis.checks if check.rule == rule]
    return any(check.status != "skipped" or check.why == "not-applicable" for check in checks)


def _share(finding: Finding | None) -> float | None:
    return None if finding is None or finding.cost is None else finding.cost.share
