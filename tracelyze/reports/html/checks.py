"""What was checked without a finding, and what could not be checked and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import story, words
from tracelyze.reports.html.icons import icon
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.diagnosis import Check, Diagnosis


def section(diagnosis: Diagnosis) -> Markup:
    """Both lists; open where nothing was found, because there they are the answer."""
    passed, skipped = story.checks(diagnosis, "passed"), story.checks(diagnosis, "skipped")
    calm = not diagnosis.findings
    return element(
        "section",
        element("h2", "What was checked"),
        element("p", f"{formatting.plural(len(diagnosis.checks), 'check')}: {words.tally(diagnosis)}.", class_="quiet"),
        _passed(passed, calm),
        _skipped(skipped, calm),
        id="checked",
    )


def _passed(checks: list[Check], opened: bool) -> Child:
    if not checks:
        return None
    rows = [
        element(
            "li",
            icon("ok"),
            element(
                "span",
                element("strong", check.reason or "no reason given"),
                element("span", f"looked for: {check.title or check.rule}"),
            ),
        )
        for check in checks
    ]
    return _folded(
        "ok",
        f"{formatting.plural(len(checks), 'check')} passed",
        "These faults were looked for and not found.",
        element("ul", rows, class_="passed"),
        opened,
    )


def _skipped(checks: list[Check], opened: bool) -> Child:
    if not checks:
        return None
    groups = [
        element(
            "div",
            element("dt", reason or "no reason given"),
            element("dd", "; ".join(check.title or check.rule for check in group)),
        )
        for reason, group in story.by_reason(checks).items()
    ]
    note = "The run does not hold what they need. Nothing is said about them, good or bad."
    title = f"{formatting.plural(len(checks), 'check')} could not be made"
    return _folded("none", title, note, element("dl", groups, class_="skipped"), opened)


def _folded(kind: str, title: str, note: str, content: Markup, opened: bool) -> Markup:
    return element(
        "details",
        element("summary", element("span", title, class_="name")),
        element("div", element("p", note, class_="quiet"), content, class_="inside"),
        class_=f"card {kind}",
        open=opened,
    )
