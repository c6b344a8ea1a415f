"""The diagnosis as SARIF 2.1.0 (OASIS), for code scanning and editors.

GitHub refuses a result without a file, so a finding without a line of its own points at the line of its cause, else at
the script of the command.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tracelyze.reports import escaping
from tracelyze.reports import json as json_report
from tracelyze.reports.wording import words

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis, Evidence, Finding, Location

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {"critical": "error", "warning": "warning", "info": "note"}
_PROBLEMS: Final = {"critical": "error", "warning": "warning", "info": "recommendation"}
_PRECISIONS: Final = {"certain": "very-high", "likely": "high", "possible": "medium"}


def render(diagnosis: Diagnosis) -> str:
    """One SARIF run: a rule for every check, a result for every finding."""
    rules = _rules(diagnosis)
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    run = {
        "tool": {"driver": _driver(diagnosis, rules)},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _skipped(diagnosis)}],
        "results": [_result(finding, diagnosis, index) for finding in diagnosis.findings],
        "properties": {"verdict": diagnosis.verdict, "run": _run(diagnosis)},
    }
    return escaping.json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _run(diagnosis: Diagnosis) -> dict[str, Any]:
    """The facts of the run, without what each signal cost: that is half of a file, and no reader of it asks."""
    facts: dict[str, Any] = diagnosis.to_dict()["run"]
    return {name: value for name, value in facts.items() if name != "signals"}


def _driver(diagnosis: Diagnosis, rules: list[dict[str, Any]]) -> dict[str, Any]:
    driver: dict[str, Any] = {"name": "tracelyze"}
    if diagnosis.tracelyze_version:
        driver["version"] = diagnosis.tracelyze_version
    return driver | {"rules": rules}


def _rules(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    first = {finding.rule: finding for finding in reversed(diagnosis.findings)}
    titles = {rule: one.title for rule, one in first.items()}
    titles |= {check.rule: check.title for check in diagnosis.checks if check.title or check.rule not in titles}
    return [_rule(rule, title or rule, first.get(rule), diagnosis.docs_url) for rule, title in titles.items()]


def _rule(rule: str, title: str, finding: Finding | None, docs_url: str) -> dict[str, Any]:
    said: dict[str, Any] = {"id": rule, "shortDescription": {"text": title}}
    if docs_url:
        said["helpUri"] = f"{docs_url.rstrip('/')}/rules/{quote(rule)}"
    if finding is None:
        return said | {"fullDescription": {"text": title}, "help": {"text": title}}
    advice = finding.fix + (f"\n\n{finding.fix_code}" if finding.fix_code else "")
    block = f"\n\n{escaping.markdown_block(finding.fix_code, 'python')}" if finding.fix_code else ""
    return said | {
        "fullDescription": {"text": title},
        "help": {
            "text": advice or title,
            "markdown": escaping.markdown(finding.fix) + block or escaping.markdown(title),
        },
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
        "properties": {
            "precision": _PRECISIONS[finding.confidence],
            "problem.severity": _PROBLEMS[finding.severity],  # what GitHub sorts its list by
            "tags": ["training"],
        },
    }


def _result(finding: Finding, diagnosis: Diagnosis, index: dict[str, int]) -> dict[str, Any]:
    cause = _cause(finding, diagnosis)
    advice = f"This follows from {cause.rule}: repair that first." if cause else finding.fix
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": "note" if cause else _LEVELS[finding.severity],
        "message": {"text": f"{finding.title}. {words.lead(finding)} {advice}".strip()},
        "partialFingerprints": {"tracelyze/v1": fingerprint(finding)},
        "properties": {
            "severity": finding.severity,
            "confidence": finding.confidence,
            "since": words.onset(finding),
            "ranks": finding.ranks,
            "costSeconds": None if finding.cost is None else finding.cost.seconds,
            "causedBy": finding.caused_by,
            "evidence": [_evidence(one) for one in finding.evidence],
        },
    }
    place = _place(finding, diagnosis)
    related = _related(finding, cause, diagnosis)
    if related:
        result["relatedLocations"] = [{"id": number, **one} for number, one in enumerate(related, 1)]
    return result | ({"locations": [place]} if place else {})


def _related(finding: Finding, cause: Finding | None, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Where the harm was seen, if something else is to change, and the line of the cause."""
    found = []
    if finding.seen_at is not None:
        found.append(_line(finding.seen_at) | {"message": {"text": "The harm was seen here."}})
    place = _place(cause, diagnosis) if cause else None
    if cause and place:
        found.append(place | {"message": {"text": f"Caused by {cause.rule}: {cause.title}"}})
    return found


def _cause(finding: Finding, diagnosis: Diagnosis) -> Finding | None:
    """The finding that explains this one; None for a root cause."""
    if finding.caused_by is None:
        return None
    return next((other for other in diagnosis.findings if other.rule == finding.caused_by), None)


def fingerprint(finding: Finding) -> str:
    """The same for the same fault at the same code in run after run: rule, file, function, text of the line.

    Neither the step, nor the line's number, nor any measured value is in it.
    """
    at = finding.location
    parts = [finding.rule] + ([at.file, at.function, at.source.strip()] if at else [])
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def _place(finding: Finding, diagnosis: Diagnosis) -> dict[str, Any] | None:
    location = _located(finding, diagnosis)
    if location is not None:
        return _line(location)
    script = next((argument for argument in diagnosis.run.command if argument.endswith(".py")), None)
    return {"physicalLocation": {"artifactLocation": _artifact(script)}} if script else None


def _line(location: Location) -> dict[str, Any]:
    place: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(location.file)}}
    if location.line >= 1:
        region: dict[str, Any] = {"startLine": location.line}
        if location.source:
            region["snippet"] = {"text": location.source}
        place["physicalLocation"]["region"] = region
    if location.function:
        place["logicalLocations"] = [{"name": location.function, "kind": "function"}]
    return place


def _located(finding: Finding, diagnosis: Diagnosis) -> Location | None:
    """The finding's own line, else the line of what caused it."""
    seen: set[str] = set()
    one: Finding | None = finding
    while one is not None and one.rule not in seen:
        seen.add(one.rule)
        if one.location is not None and not one.location.file.startswith("<"):
            return one.location
        one = (
            next((other for other in diagnosis.findings if other.rule == one.caused_by), None)
            if one.caused_by
            else None
        )
    return None


def _artifact(file: str) -> dict[str, str]:
    """Relative files belong to the repository; absolute ones are named as they are."""
    path: PurePath = PureWindowsPath(file) if "\\" in file and ":" in file[:3] else PurePosixPath(file)
    if path.is_absolute():
        return {"uri": "file:///" + quote(path.as_posix().lstrip("/"), safe="/:", errors="replace")}
    return {"uri": quote(path.as_posix(), safe="/", errors="replace"), "uriBaseId": "%SRCROOT%"}


def _evidence(one: Evidence) -> dict[str, Any]:
    return {
        "name": one.name,
        "value": json_report.named(one.value),
        "unit": f"{one.unit} of {one.of}" if one.of else one.unit,
        "threshold": json_report.named(one.threshold),
        "source": one.source,
    }


def _skipped(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    return [
        {"level": "note", "associatedRule": {"id": check.rule}, "message": {"text": f"not checked: {check.reason}"}}
        for check in diagnosis.checks
        if check.status == "skipped" and check.why != "not-applicable"
    ]
