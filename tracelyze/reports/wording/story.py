"""The order in which findings are shown: each root cause with what followed from it, every finding exactly once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracelyze.diagnosis import Check, Diagnosis, Finding


@dataclass(frozen=True)
class Anchored:
    """A finding with its anchor: the id of its rule, numbered from the second finding of the same rule on."""

    finding: Finding
    anchor: str


@dataclass(frozen=True)
class Chapter:
    """A root cause and its consequences, in order of onset."""

    root: Anchored
    consequences: list[Anchored]


def chapters(diagnosis: Diagnosis) -> list[Chapter]:
    """All findings, grouped by root cause, in the order of the diagnosis.

    Where two roots share a rule, the first one takes the consequences. A finding whose cause is not among the
    findings, or whose causes run in a circle, is shown as a root, so that none is lost.
    """
    anchors = _anchors(diagnosis.findings)
    added: set[int] = set()
    result: list[Chapter] = []

    def anchored(finding: Finding) -> Anchored:
        return Anchored(finding, anchors[id(finding)])

    def add(root: Finding) -> None:
        added.add(id(root))
        following = [finding for finding in diagnosis.consequences(root.rule) if id(finding) not in added]
        added.update(id(finding) for finding in following)
        result.append(Chapter(anchored(root), [anchored(one) for one in following]))

    known = {finding.rule for finding in diagnosis.findings}
    for finding in diagnosis.findings:
        if finding.caused_by is None or finding.caused_by not in known:
            add(finding)
    for finding in diagnosis.findings:
        if id(finding) not in added:
            add(finding)
    return result


def checks(diagnosis: Diagnosis, status: str) -> list[Check]:
    """The checks with one outcome, in the order of the catalogue."""
    return [check for check in diagnosis.checks if check.status == status]


def needs_more(diagnosis: Diagnosis) -> list[Check]:
    """The skipped checks that more data would let run."""
    return [check for check in checks(diagnosis, "skipped") if check.why != "not-applicable"]


def not_applicable(diagnosis: Diagnosis) -> list[Check]:
    """The skipped checks that have nothing to check in this run."""
    return [check for check in checks(diagnosis, "skipped") if check.why == "not-applicable"]


def _anchors(findings: list[Finding]) -> dict[int, str]:
    seen: dict[str, int] = {}
    anchors: dict[int, str] = {}
    for finding in findings:
        name = re.sub(r"[^A-Za-z0-9-]+", "-", finding.rule) or "finding"
        count = seen[name] = seen.get(name, 0) + 1
        anchors[id(finding)] = name if count == 1 else f"{name}-{count}"
    return anchors
