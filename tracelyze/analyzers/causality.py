"""Which finding explains which: consequences are folded under their root cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.merging import gravity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.rule import Rule
    from tracelyze.diagnosis import Finding


def on_rank(finding: Finding, rank: int) -> Finding:
    """The finding with the rank of the process that it was made in."""
    return replace(finding, ranks=[rank])


def explain(findings: Sequence[Finding], rules: Sequence[Rule]) -> list[Finding]:
    """Set `caused_by` of each finding (one per rule) to the nearest cause that began no later.

    The nearest cause has the longest chain of causes behind it, and is the latest of those. Rules declare their causes,
    and the declarations form no cycle (tested), so neither do the answers.
    """
    causes = {rule.id: rule.consequence_of for rule in rules}
    by_rule = {finding.rule: finding for finding in findings}
    chosen: dict[str, str | None] = {}

    def depth(rule: str) -> int:
        cause = cause_of(rule)
        return 0 if cause is None else 1 + depth(cause)

    def cause_of(rule: str) -> str | None:
        if rule not in chosen:
            effect = by_rule[rule]
            possible = [c for c in causes.get(rule, ()) if c in by_rule and began_no_later(by_rule[c], effect)]
            chosen[rule] = max(possible, key=lambda c: (depth(c), _onset(by_rule[c])), default=None)
        return chosen[rule]

    return [replace(finding, caused_by=cause_of(finding.rule)) for finding in findings]


def began_no_later(cause: Finding, effect: Finding) -> bool:
    """Whether `cause` began at or before `effect`; an unknown onset is no objection. Findings must share a rank."""
    if not set(cause.ranks) & set(effect.ranks):
        return False
    if cause.first_step is None or effect.first_step is None:
        return True
    return cause.first_step <= effect.first_step


def order(findings: Sequence[Finding]) -> list[Finding]:
    """Roots first by severity, confidence and cost; each root is followed by its consequences in order of onset."""
    ordered: list[Finding] = []

    def place(finding: Finding) -> None:
        ordered.append(finding)
        for effect in sorted((f for f in findings if f.caused_by == finding.rule), key=_onset):
            place(effect)

    for root in sorted((finding for finding in findings if finding.caused_by is None), key=gravity):
        place(root)
    return ordered


def _onset(finding: Finding) -> float:
    return float("inf") if finding.first_step is None else float(finding.first_step)
