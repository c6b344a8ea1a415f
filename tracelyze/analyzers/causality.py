"""Which finding explains which: consequences are folded under their root cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.merging import gravity
from tracelyze.diagnosis import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.kineto.rule import TraceRule
    from tracelyze.analyzers.rule import Rule
    from tracelyze.diagnosis import Finding, Verdict


def on_rank(finding: Finding, rank: int) -> Finding:
    """The finding with the rank of the process that it was made in, if it does not name ranks itself."""
    return finding if finding.ranks != [0] else replace(finding, ranks=[rank])


def explain(findings: Sequence[Finding], rules: Sequence[Rule | TraceRule]) -> list[Finding]:
    """Set `caused_by` of each finding (one per rule) to the nearest cause that began no later.

    The nearest cause has the longest chain of causes behind it, and is the latest of those. Two rules may name each
    other as a cause (a loss that diverges and gradients that explode): the one that began first is it, and at the same
    step the one that comes first in the catalogue. So there are no cycles.
    """
    causes = {rule.id: rule.consequence_of for rule in rules}
    between_ranks = {rule.id for rule in rules if getattr(rule, "gather", None) is not None}  # they concern all ranks
    place = {rule.id: index for index, rule in enumerate(rules)}
    by_rule = {finding.rule: finding for finding in findings}
    chosen: dict[str, str | None] = {}

    def began(rule: str) -> tuple[int, int]:
        onset = by_rule[rule].first_step
        return (-1 if onset is None else onset, place.get(rule, len(place)))

    def depth(rule: str) -> int:
        cause = cause_of(rule)
        return 0 if cause is None else 1 + depth(cause)

    def cause_of(rule: str) -> str | None:
        if rule not in chosen:
            ranks = set(by_rule[rule].ranks)
            fired = [
                cause
                for cause in causes.get(rule, ())
                if cause in by_rule
                and (cause in between_ranks or ranks & set(by_rule[cause].ranks))
                and _same_training(by_rule[rule], by_rule[cause])
            ]
            earlier = [cause for cause in fired if began(cause) < began(rule)]
            chosen[rule] = max(earlier, key=lambda cause: (depth(cause), *began(cause)), default=None)
        return chosen[rule]

    return [replace(finding, caused_by=cause_of(finding.rule)) for finding in findings]


def _same_training(one: Finding, other: Finding) -> bool:
    """Whether one can be the cause of the other: in a sweep, one training's fault is no other's cause."""
    return not one.trainings or not other.trainings or not set(one.trainings).isdisjoint(other.trainings)


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


def verdict_of(findings: list[Finding], unknown: str = "") -> Verdict:
    """The highest severity among the findings, or ok.

    `unknown`, a reason why too little was checked, takes the place of everything below a warning.
    """
    grave = next((one for one in SEVERITIES if any(finding.severity == one for finding in findings)), None)
    if unknown and grave in (None, "info"):
        return "unknown"
    return grave or "ok"
