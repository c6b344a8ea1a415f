"""Why we say so: the numbers with their limits, next to the healthy explanations that were ruled out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.formatting import capitalized
from tracelyze.reports import escaping
from tracelyze.reports.html.charts import proves_nothing
from tracelyze.reports.html.findings import columns, tracebacks
from tracelyze.reports.html.findings.repair import paragraphs
from tracelyze.reports.markup import Child, Markup, element, with_code
from tracelyze.reports.wording import words
from tracelyze.reports.wording.tracebacks import is_traceback
from tracelyze.reports.wording.words import limit, rest_of_summary

if TYPE_CHECKING:
    from tracelyze.diagnosis import Evidence, Finding

_INLINE: Final = 120
"""Characters of a value that still fits a table cell."""

_SHORT: Final = 28
"""Characters of a limit that is kept on one line."""

_LONGEST: Final = 4000
"""Characters of a value that is shown in full."""


def section(finding: Finding, heading: str = "h2") -> Child:
    """Evidence and excluded explanations as two cards, the basis of the limits in a fold; None without any."""
    cards, texts = _cards(finding)
    rest = rest_of_summary(finding)
    folds = _basis(finding)
    if not cards and not rest and folds is None:
        return None
    return element(
        "section",
        element(heading, "Why we say so"),
        element("div", paragraphs(rest), class_="intro") if rest else None,
        element("div", cards, class_="halves") if cards else None,
        texts,
        folds,
        id="evidence" if heading == "h2" else None,
    )


def flat(finding: Finding) -> Child:
    """Why we say so, inside a row that opens: without the heading of a section."""
    cards, texts = _cards(finding)
    rest = rest_of_summary(finding)
    return [
        paragraphs(rest) if rest else None,
        element("div", cards, class_="halves") if cards else None,
        texts,
        _basis(finding),
    ]


def traceback_section(finding: Finding) -> Child:
    """The traceback of a crash; None where the finding holds none."""
    texts = [str(one.value) for one in finding.evidence if is_traceback(one)]
    if not texts:
        return None
    rank = f"Rank {finding.ranks[0]}" if len(finding.ranks) == 1 and finding.ranks != [0] else ""
    return element(
        "section",
        element("h2", "Traceback" if len(texts) == 1 else "Tracebacks"),
        element("p", "Your own frames are open; library frames are folded.", class_="intro"),
        [tracebacks.cards(text, rank) for text in texts],
        id="traceback",
    )


def _cards(finding: Finding) -> tuple[list[Markup], list[Child]]:
    """Measured numbers on the left; settings and excluded explanations on the right; long texts for below."""
    short, texts = _parts(finding)
    settings = [one for one in short if one.threshold is None and one.role == "setting"]
    numbers = [one for one in short if one not in settings]
    further = [card for card in (_table("Settings", settings), _excluded(finding)) if card is not None]
    right = further[0] if len(further) == 1 else element("div", further, class_="stack") if further else None
    return [card for card in (_table("Evidence", numbers), right) if card is not None], texts


def _parts(finding: Finding) -> tuple[list[Evidence], list[Child]]:
    """Evidence for the tables, and long texts below them."""
    numbers: list[Evidence] = []
    texts: list[Child] = []
    for one in finding.evidence:
        if is_traceback(one):
            continue
        value = words.value(one)
        if len(value) > _INLINE and value in finding.summary:
            continue  # the page says it already
        if len(value) > _INLINE or "\n" in value.strip():
            text = escaping.shortened(escaping.printable(value), _LONGEST)
            texts.append(
                element(
                    "details",
                    element("summary", capitalized(escaping.shortened(escaping.one_line(one.name), _INLINE))),
                    _pre(text),
                    class_="fold",
                    # Where there is no chart, the first such text is what the finding shows.
                    open=all(proves_nothing(chart) for chart in finding.charts) and not texts,
                )
            )
        elif one.value is not None:
            numbers.append(one)
    return numbers, texts


def _pre(text: str) -> Markup:
    """A long text: a table where it is one; other lines keep their places, and scroll where they are wider."""
    if "\n" not in text.strip():
        return element("pre", text, class_="command")
    found = columns.read(text)
    if found is not None:
        return columns.table(found)
    return element("pre", text, class_="command columns", tabindex="0", role="group", aria_label="Lines")


def _table(heading: str, evidence: list[Evidence]) -> Markup | None:
    if not evidence:
        return None
    rows = [
        element(
            "tr",
            element("th", _named(one), scope="row"),
            element("td", said := words.value(one), class_=_fit("value", said, _SHORT // 2)),
            element("td", limit(one), class_=_fit("limit", limit(one), _SHORT)),
        )
        for one in evidence
    ]
    head = [element("th", name, scope="col", class_="hidden-label") for name in ("Measured", "Value", "Limit")]
    table = element("table", element("thead", element("tr", head)), element("tbody", rows), class_="evidence")
    return element("div", element("h3", heading), table, class_="card")


def _fit(kind: str, text: str, most: int) -> str:
    """The class of a cell: a short one is never wrapped."""
    return f"{kind} short" if len(text) <= most else kind


def _named(one: Evidence) -> Child:
    """The name of a setting is code; that of a measurement begins a line."""
    name = escaping.one_line(one.name)
    return element("code", name) if one.role == "setting" else capitalized(name)


def _excluded(finding: Finding) -> Markup | None:
    """Explanations that were ruled out; else when the finding would be wrong."""
    if finding.excluded:
        rows = [element("li", with_code(capitalized(escaping.shortened(one, 400)))) for one in finding.excluded]
        return element(
            "div", element("h3", "Other readings, excluded"), element("ul", rows, class_="readings"), class_="card"
        )
    if finding.false_alarm.strip():
        return element(
            "div", element("h3", "When this would be a false alarm"), paragraphs(finding.false_alarm), class_="card"
        )
    return None


def _basis(finding: Finding) -> Child:
    """Where the limits come from, and when this would be a false alarm where no card says so."""
    sourced = [one for one in finding.evidence if one.source and one.threshold is not None]
    doubt = finding.false_alarm.strip() if finding.excluded else ""
    if not sourced and not doubt:
        return None
    said = [
        part
        for part, known in (("Where the limits come from", sourced), ("when this would be a false alarm", doubt))
        if known
    ]
    return element(
        "details",
        element("summary", capitalized(", and ".join(said))),
        element(
            "ul",
            [
                element(
                    "li",
                    element("b", f"{capitalized(escaping.one_line(one.name))}, {limit(one)}: "),
                    escaping.shortened(escaping.one_line(one.source), 400),
                    ".",
                )
                for one in sourced
            ],
        )
        if sourced
        else None,
        element("div", element("p", element("b", "A false alarm: ")), paragraphs(doubt)) if doubt else None,
        class_="fold",
    )
