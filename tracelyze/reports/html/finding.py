"""A finding on the page: what happened, since when, what it cost, where, what to change, and the evidence."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import escaping, words
from tracelyze.reports.html.icons import badge
from tracelyze.reports.markup import Child, Markup, element, join

if TYPE_CHECKING:
    from tracelyze.diagnosis import Evidence, Finding
    from tracelyze.reports.html.charts import Gallery
    from tracelyze.reports.story import Told

LONGEST = 4000  # characters of one text of a run; the rest is in the diagnosis as data
_SIDE_BY_SIDE = 46  # characters of a line of code that still fits half the card
_SHORT = 18  # characters that are kept on one line in a table
_INLINE = 120  # characters of a value that still fits a table cell


def root(told: Told, gallery: Gallery, of_ranks: int) -> Markup:
    """The card of a root cause, open."""
    finding = told.finding
    return element(
        "article",
        element(
            "header",
            element("p", badge(finding.severity), _confidence(finding), _permalink(told), class_="kicker"),
            element("h2", finding.title),
        ),
        _body(finding, gallery, of_ranks),
        id=told.anchor,
        class_=f"card finding {finding.severity}",
    )


def consequence(told: Told, cause: Told | None, gallery: Gallery, of_ranks: int) -> Markup:
    """The smaller card of something that followed, folded."""
    finding = told.finding
    after = None
    if cause is not None:
        after = element(
            "p", "Follows from ", element("a", cause.finding.title, href=f"#{cause.anchor}"), ".", class_="quiet"
        )
    return element(
        "details",
        element(
            "summary",
            badge(finding.severity),
            element("span", finding.title, class_="name"),
            element("span", _since(finding), class_="when"),
        ),
        element(
            "div",
            element("p", _confidence(finding), _permalink(told), class_="kicker"),
            after,
            _body(finding, gallery, of_ranks),
            class_="inside",
        ),
        id=told.anchor,
        class_=f"card consequence {finding.severity}",
    )


def paragraphs(text: str) -> Child:
    """Plain words, a paragraph for every blank line, line breaks kept."""
    parts = escaping.shortened(escaping.printable(text), LONGEST).strip().split("\n\n")
    return [element("p", _with_code(part), class_="words") for part in parts if part.strip()]


def _with_code(text: str) -> Child:
    """Text in which what stands between backticks is set as code."""
    return [element("code", part) if index % 2 else part for index, part in enumerate(re.split(r"`([^`\n]+)`", text))]


def _body(finding: Finding, gallery: Gallery, of_ranks: int) -> Markup:
    return join(
        [
            element("div", paragraphs(finding.summary), class_="summary"),
            _key_facts(finding, of_ranks),
            _repair(finding),
            _evidence(finding.evidence),
            [gallery.show(chart) for chart in finding.charts],
            _doubt(finding),
        ]
    )


def _key_facts(finding: Finding, of_ranks: int) -> Child:
    known = finding.first_step is not None or finding.first_second is not None
    # A single step, or all steps from the first one on, are said by "since" already.
    steps = words.steps(finding) if finding.last_step not in (None, finding.first_step) else ""
    facts = [
        ("Since", words.onset(finding) if known else ""),
        ("Affected", ", ".join(part for part in (steps, words.ranks(finding, of_ranks)) if part)),
        ("Cost so far", words.cost(finding)),
    ]
    shown = [element("div", element("dt", name), element("dd", said)) for name, said in facts if said]
    return element("dl", shown, class_="keys") if shown else None


def _repair(finding: Finding) -> Child:
    """The user's line beside the code that should stand there."""
    columns: list[Child] = []
    source = finding.location.source if finding.location is not None else ""
    longest = max(map(len, [source.strip(), *finding.fix_code.splitlines()]))
    if finding.location is not None:
        where = element("code", words.place(finding.location))
        if source.strip():
            columns.append(_code(["Now, ", where], source, "now"))
        else:
            columns.append(element("p", "In ", where, class_="where"))
    if finding.fix_code.strip():
        columns.append(_code("Instead" if source.strip() else "Like this", finding.fix_code, "instead"))
    if not columns and not finding.fix.strip():
        return None
    return element(
        "section",
        element("h3", "What to change"),
        paragraphs(finding.fix),
        element("div", columns, class_="compare wide" if longest > _SIDE_BY_SIDE else "compare") if columns else None,
        class_="repair",
    )


def _code(title: Child, code: str, kind: str) -> Markup:
    text = escaping.shortened(textwrap.dedent(escaping.printable(code)).strip("\n"), LONGEST)
    return element(
        "div",
        element("p", title, class_="code-title"),
        element("pre", element("code", text), tabindex="0"),
        class_=f"code {kind}",
    )


def _evidence(evidence: list[Evidence]) -> Child:
    if not evidence:
        return None
    compared = any(one.threshold is not None for one in evidence)
    sourced = any(one.source for one in evidence)
    heads = [
        "What was measured",
        "Value",
        *(["Threshold", "Margin"] if compared else []),
        *(["Basis"] if sourced else []),
    ]
    rows = [_row(one, compared, sourced, heads) for one in evidence]
    return element(
        "section",
        element("h3", "Evidence"),
        element(
            "table",
            element("thead", element("tr", [element("th", head, scope="col") for head in heads])),
            element("tbody", rows),
            class_="evidence",
        ),
    )


def _row(one: Evidence, compared: bool, sourced: bool, heads: list[str]) -> Child:
    value = formatting.quantity(one.value, one.unit)
    long = len(value) > _INLINE or "\n" in value.strip()
    cells = ["see below" if long else value]
    cells += [words.threshold(one), words.margin(one)] if compared else []
    cells += [one.source] if sourced else []
    row = element(
        "tr",
        element("th", escaping.shortened(one.name, LONGEST), scope="row"),
        [
            element("td", cell, data_label=head, class_="number short" if len(cell) <= _SHORT else "number")
            for head, cell in zip(heads[1:], cells, strict=True)
        ],
    )
    if not long:
        return row
    text = element("pre", element("code", escaping.shortened(escaping.printable(value), LONGEST)), tabindex="0")
    return [row, element("tr", element("td", text, colspan=len(heads)), class_="long")]


def _doubt(finding: Finding) -> Child:
    if not finding.false_alarm.strip():
        return None
    return element(
        "details",
        element("summary", "When this would be a false alarm"),
        paragraphs(finding.false_alarm),
        class_="doubt",
    )


def _confidence(finding: Finding) -> Markup:
    return element("span", f"{finding.confidence}: {words.CONFIDENCE[finding.confidence]}", class_="confidence")


def _permalink(told: Told) -> Markup:
    return element("a", told.finding.rule, href=f"#{told.anchor}", class_="permalink", title="Link to this finding")


def _since(finding: Finding) -> str:
    return "" if finding.first_step is None else f"since step {finding.first_step:,}"
