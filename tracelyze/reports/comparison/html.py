"""The comparison as one HTML file: offline, readable without script, in the style of the diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.reports import escaping
from tracelyze.reports.comparison import words
from tracelyze.reports.html.charts import Gallery, Shown
from tracelyze.reports.html.head import asset, head, source_hash
from tracelyze.reports.html.icons import icon, logo
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.comparison import Change, Comparison, FindingChange, Section, Side

_OPEN: Final = ("step", "causes", "recorded", "loss", "classes")
"""Sections that are not folded."""
_SIGN: Final = {"same": "info", "better": "ok", "fixed": "ok", "unknown": "info"}
_NUMBERS: Final = ("A", "B", "B - A", "Change")
_LONGEST: Final = 400


def render(comparison: Comparison) -> str:
    """The whole page."""
    main = element(
        "main",
        _hero(comparison),
        _charts(comparison),
        _notes(comparison),
        [_section(section) for section in comparison.sections],
        _findings(comparison.findings),
        _settings(comparison),
        element("p", words.NOISE, class_="cost-of-recording") if words.has_noise(comparison) else None,
        element("footer", element("p", f"tracelyze {comparison.tracelyze_version}, comparison."), class_="page-foot"),
        id="main",
        class_="wrap",
    )
    data = escaping.script_json(comparison.to_dict())
    body = element(
        "body",
        element("script", Markup(data), type="application/json", id="comparison"),
        element(
            "header",
            element(
                "div",
                element("span", logo(), element("span", "tracelyze"), class_="brand"),
                element("div", element("button", "Theme", type="button", id="theme", hidden=True), class_="actions"),
                class_="wrap",
            ),
            class_="top",
        ),
        main,
        element("script", Markup(asset("report.js"))),
    )
    return "<!DOCTYPE html>\n" + element("html", _head(comparison), body, lang="en") + "\n"


def _head(comparison: Comparison) -> Markup:
    title = f"{words.VERDICT[comparison.verdict]}: {escaping.one_line(comparison.headline)}"
    allowed = [source_hash(asset("report.js").encode())]
    style = asset("report.css") + asset("comparison.css")
    return head(title, comparison.tracelyze_version, style, asset("theme.js"), allowed)


def _hero(comparison: Comparison) -> Markup:
    like = words.severity(comparison)
    speed = words.speed(comparison)
    badges: list[Child] = [element("span", icon(speed), words.VERDICT[comparison.verdict], class_=f"badge {speed}")]
    if words.new_faults(comparison):
        badges.insert(0, element("span", icon(like), "New fault", class_=f"badge {like}"))
    return element(
        "div",
        element("p", badges, class_="verdict"),
        element("h1", comparison.headline),
        element("p", comparison.lead, class_="lead") if comparison.lead else None,
        element("dl", _side("A, before", comparison.a), _side("B, after", comparison.b), class_="key-facts"),
        class_=f"hero {like}",
    )


def _charts(comparison: Comparison) -> Child:
    """A and B over each other, on one step axis."""
    shown = [Shown(chart, f"charts.{index}") for index, chart in enumerate(comparison.charts)]
    cards = Gallery().cards(shown, onset=False)
    heading = element("h2", "A and B over each other", class_="hidden-label")
    return element("section", heading, cards, id="chart", class_="after-hero") if cards else None


def _side(name: str, side: Side) -> Markup:
    return element(
        "div", element("dt", name), element("dd", element("code", side.path)), element("dd", words.side(side))
    )


def _notes(comparison: Comparison) -> Child:
    if not comparison.notes:
        return None
    rows = [element("li", escaping.shortened(note, _LONGEST)) for note in comparison.notes]
    return element(
        "section",
        element("h2", "Limits of this comparison"),
        element("div", element("ul", rows, class_="notes"), class_="card"),
    )


def _section(section: Section) -> Markup:
    about = element("p", section.about, class_="intro")
    if section.id in _OPEN:
        return element("section", element("h2", section.title), about, _card(_table(section)), id=section.id)
    return element(
        "section",
        element(
            "div",
            element(
                "details",
                element("summary", element("span", section.title, class_="title")),
                element("div", about, _card(_table(section)), class_="inside page"),
            ),
            class_="rows",
        ),
        id=section.id,
    )


def _card(table: Markup) -> Markup:
    return element("div", element("div", table, class_="wide"), class_="card")


def _table(section: Section) -> Markup:
    """The changes, with a bar and a meaning where at least one of them has one."""
    largest = max((abs(change.difference) for change in section.changes if change.unit == "ms"), default=0.0)
    bars, meant = largest > 0, any(words.meaning(change) for change in section.changes)
    names = ("Quantity", *_NUMBERS, *(["Bar"] if bars else []), *(["Meaning"] if meant else []))
    head = [element("th", name, scope="col", class_="number" if name in _NUMBERS else None) for name in names]
    rows = [_row(change, largest, bars, meant) for change in section.changes]
    return element("table", element("thead", element("tr", head)), element("tbody", rows), class_="stacked changes")


def _row(change: Change, largest: float, bars: bool, meant: bool) -> Markup:
    meaning = words.meaning(change)
    name: list[Child] = [escaping.shortened(change.name, _LONGEST)]
    if change.detail:
        name.append(element("span", escaping.shortened(change.detail, _LONGEST), class_="detail"))
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", words.value(change, change.before), class_="number", data_label="A"),
        element("td", words.value(change, change.after), class_="number", data_label="B"),
        element("td", words.difference(change), class_="number", data_label="B - A"),
        element("td", words.relative(change), class_="number", data_label="Change"),
        element("td", _bar(change, largest), class_="bar-cell") if bars else None,
        element("td", meaning, class_="quiet") if meant else None,
        class_="calm" if meaning else change.significance,
    )


def _bar(change: Change, largest: float) -> Child:
    """The difference drawn to the left where B has less, to the right where it has more."""
    if change.unit != "ms" or largest <= 0:
        return None
    length = 50 * abs(change.difference) / largest
    start = 50 - length if change.difference < 0 else 50
    shapes = [
        element("rect", x=f"{start:.2f}%", y=3, width=f"{length:.2f}%", height=8, class_="delta"),
        element("line", x1="50%", x2="50%", y1=0, y2=14, class_="zero"),
    ]
    return element("svg", shapes, class_="difference", height=14, width="100%", aria_hidden="true")


def _findings(changes: list[FindingChange]) -> Child:
    if not changes:
        return None
    costs = any(words.finding(one) for one in changes)
    rows = [
        element(
            "tr",
            element("th", _fate(one), scope="row"),
            element("td", one.title),
            element("td", element("code", one.rule)),
            element("td", words.finding(one), class_="number", data_label="Cost, of the time") if costs else None,
        )
        for one in changes
    ]
    head = [element("th", name, scope="col") for name in ("In B", "Finding", "Check")]
    head += [element("th", "Cost, of the time", scope="col", class_="number")] if costs else []
    table = element("table", element("thead", element("tr", head)), element("tbody", rows), class_="stacked")
    return element("section", element("h2", "Findings"), _card(table), id="findings")


def _fate(change: FindingChange) -> Markup:
    sign = change.severity if change.fate in ("new", "worse") else _SIGN[change.fate]
    return element("span", words.FATE[change.fate], class_=f"tag {sign}")


def _settings(comparison: Comparison) -> Child:
    if not comparison.settings:
        return None
    head = element("tr", [element("th", name, scope="col") for name in ("Setting", "A", "B")])
    rows = [
        element(
            "tr",
            element("th", one.name, scope="row"),
            element("td", element("code", one.before), data_label="A"),
            element("td", element("code", one.after), data_label="B"),
        )
        for one in comparison.settings
    ]
    table = element("table", element("thead", head), element("tbody", rows), class_="stacked")
    return element("section", element("h2", "Settings that differ"), _card(table), id="settings")
