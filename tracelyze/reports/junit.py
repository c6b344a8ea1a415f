"""The diagnosis as JUnit XML, for continuous integration: a test case for every check.

A finding that is critical or a warning fails its case, notes do not; checks that could not run are skipped. A run of
which nothing is known is one error, so that nobody takes it for a passed one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

from tracelyze.reports import escaping
from tracelyze.reports.wording import plain_tracebacks, tracebacks, words

if TYPE_CHECKING:
    from tracelyze.diagnosis import Check, Diagnosis, Finding

_LINES: Final = 40  # of a traceback
_FAILING: Final = ("critical", "warning")


def render(diagnosis: Diagnosis) -> str:
    """One test suite, named after the run. What a case says is what the terminal shows of the finding."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    cases = [_case(check, by_rule.get(check.rule, [])) for check in diagnosis.checks]
    unknown = diagnosis.verdict == "unknown"
    if unknown:
        said = diagnosis.verdict_reason or words.verdict(diagnosis)
        cases.insert(0, _element("verdict", f'    <error type="unknown" message={_attribute(said)}/>\n'))
    failed = sum(any(one.severity in _FAILING for one in by_rule.get(check.rule, [])) for check in diagnosis.checks)
    skipped = sum(check.status == "skipped" for check in diagnosis.checks)
    counts = f'tests="{len(cases)}" failures="{failed}" errors="{int(unknown)}" skipped="{skipped}"'
    seconds = f' time="{diagnosis.run.duration_s:.3f}"' if diagnosis.run.duration_s is not None else ""
    suite = f"  <testsuite name={_attribute(diagnosis.run.path)} {counts}{seconds}>\n"
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<testsuites name="tracelyze" {counts}>\n{suite}{"".join(cases)}  </testsuite>\n</testsuites>\n'


def _case(check: Check, findings: list[Finding]) -> str:
    failing = [finding for finding in findings if finding.severity in _FAILING]
    body = ""
    if failing:
        lead = failing[0]
        body = f"    <failure type={_attribute(lead.severity)} message={_attribute(lead.title)}>"
        body += f"{escape(_text(failing))}</failure>\n"
    elif findings:
        body = f"    <system-out>{escape(_text(findings))}</system-out>\n"
    elif check.status == "skipped":
        body = f"    <skipped message={_attribute(check.reason)}/>\n"
    return _element(check.rule, body)


def _element(name: str, body: str) -> str:
    return f'  <testcase classname="tracelyze" name={_attribute(name)}>\n{body}  </testcase>\n'


def _text(findings: list[Finding]) -> str:
    paragraphs = []
    for finding in findings:
        at = "At" if finding.seen_at is None else "Change at"
        where = f"{at} {words.place(finding.location)}" if finding.location else ""
        where += f"\nSeen at {words.place(finding.seen_at)}" if finding.seen_at else ""
        since, cost = words.onset(finding), words.cost(finding)
        facts = [f"Since {since}" if since != "not known" else "", f"Cost: {cost}" if cost else "", where]
        if finding.caused_by:
            advice = [f"This follows from {finding.caused_by}: repair that first."]
        else:
            advice = [
                f"Fix: {finding.fix}" if finding.fix else "",
                f"To verify: {finding.verify}" if finding.verify else "",
            ]
        said = [finding.summary, *facts, *advice]  # the title stands in the message already
        said += [
            "\n".join(["", *plain_tracebacks.folded(str(one.value), _LINES)])
            for one in finding.evidence
            if tracebacks.is_traceback(one)
        ]
        paragraphs.append("\n".join(part for part in said if part))
    return escaping.printable("\n\n".join(paragraphs))


def _attribute(text: str) -> str:
    return quoteattr(escaping.one_line(text))
