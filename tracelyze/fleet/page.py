"""The page of a fleet: what goes wrong most, what it costs, in which runs, since when. Offline, without script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracelyze.fleet.summary import Fault, Summary
from tracelyze.formatting import duration, plural
from tracelyze.reports import escaping
from tracelyze.reports.html.head import asset, head, source_hash
from tracelyze.reports.html.icons import badge, icon, logo
from tracelyze.reports.markup import Child, Markup, element
from tracelyze.version import __version__

LISTED: Final = 20  # runs of a fault, and errors, that are named on the page; the table holds all
_LONGEST: Final = 400
_VERDICTS: Final = {
    "critical": "critical",
    "warning": "warning",
    "info": "note only",
    "ok": "no fault found",
    "unknown": "nothing known",
    "error": "could not be judged",
}
"""The verdicts of the table, the gravest first, as the page words them."""


def render(summary: Summary, titles: Mapping[str, str] | None = None, pages: Mapping[str, str] | None = None) -> str:
    """The whole page. `titles`: of the rules; `pages`: the reports of runs that have one, as seen from this page."""
    main = element(
        "main",
        _hero(summary),
        _faults(summary, titles or {}, pages or {}),
        _errors(summary, pages or {}),
        element("footer", element("p", f"tracelyze {__version__}, fleet."), class_="page-foot"),
        id="main",
        class_="wrap",
    )
    body = element(
        "body",
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
    allowed = [source_hash(asset("report.js").encode())]
    style = asset("report.css") + asset("fleet.css")
    top = head(headline(summary), __version__, style, asset("theme.js"), allowed)
    return "<!DOCTYPE html>\n" + element("html", top, body, lang="en") + "\n"


def headline(summary: Summary) -> str:
    """The fleet in a sentence."""
    judged = summary.runs - summary.verdicts.get("error", 0)
    if not judged:
        return f"None of {plural(summary.runs, 'run')} could be judged" if summary.runs else "No runs"
    missing = f"; {summary.runs - judged:,} could not be judged" if judged < summary.runs else ""
    grave = summary.grave
    if not grave:
        return f"No fault found in {plural(judged, 'run')}{missing}"
    have = f"{summary.faulty:,} of {plural(judged, 'run')} {'has' if summary.faulty == 1 else 'have'} a fault"
    most = grave[0]
    if len(grave) == 1:
        return f"{have}: {most.rule}{missing}"
    if len(most.runs) > 1:
        return f"{have}, most often {most.rule} ({plural(len(most.runs), 'run')}){missing}"
    return f"{have}, each a different one{missing}" if summary.faulty == len(grave) else f"{have}{missing}"


def _hero(summary: Summary) -> Markup:
    worst = next((name for name in ("critical", "warning", "info") if summary.verdicts.get(name)), None)
    judged = summary.runs - summary.verdicts.get("error", 0)
    shown = worst or ("ok" if judged and summary.verdicts.get("ok") else "unknown")
    counts = [(name, summary.verdicts[name]) for name in _VERDICTS if summary.verdicts.get(name)]
    facts = [element("div", element("dt", _VERDICTS[name].capitalize()), element("dd", f"{n:,}")) for name, n in counts]
    return element(
        "div",
        element("p", badge(shown), class_="verdict"),
        element("h1", headline(summary)),
        element(
            "dl", element("div", element("dt", "Runs"), element("dd", f"{summary.runs:,}")), facts, class_="key-facts"
        ),
        class_=f"hero {shown}",
    )


def _faults(summary: Summary, titles: Mapping[str, str], pages: Mapping[str, str]) -> Markup | None:
    """A row for each root cause. What no fault has, a cost or a commit that it came with, gets no column."""
    if not summary.faults:
        return None
    costs = any(fault.seconds is not None for fault in summary.faults)
    dated = any(fault.since or fault.where for fault in summary.faults)
    names = ["Fault", "Runs with it", *(["Time lost"] if costs else []), *(["Since"] if dated else []), "Where"]
    rows = [_fault(fault, titles.get(fault.rule, ""), pages, costs, dated) for fault in summary.faults]
    table = element(
        "table",
        element("thead", element("tr", [element("th", name, scope="col") for name in names])),
        element("tbody", rows),
        class_="stacked faults",
    )
    return element(
        "section",
        element("h2", "What goes wrong"),
        element(
            "p",
            "Root causes; what follows from them is not counted. A run has its own report: ",
            element("code", "tracelyze diagnose RUN"),
            class_="intro",
        ),
        element("div", element("div", table, class_="wide"), class_="card"),
    )


def _fault(fault: Fault, title: str, pages: Mapping[str, str], costs: bool, dated: bool) -> Markup:
    cells: list[Child] = [element("td", f"{len(fault.runs):,} of {fault.judged:,} checked", data_label="Runs with it")]
    if costs:
        lost = "not known" if fault.seconds is None else duration(fault.seconds)
        cells.append(element("td", lost, data_label="Time lost", class_="quiet" if fault.seconds is None else None))
    if dated:
        said = fault.since or fault.where
        cells.append(
            element("td", said or "no single commit or host", class_=None if said else "quiet", data_label="Since")
        )
    name = element(
        "span", icon(fault.severity), " ", element("b", title or fault.rule), class_=f"fault {fault.severity}"
    )
    known = element("span", element("code", fault.rule), class_="detail") if title else None
    return element("tr", element("th", name, known, scope="row"), cells, element("td", _named(fault.runs, pages)))


def _named(runs: dict[str, str], pages: Mapping[str, str]) -> Markup:
    """The run, or the gravest of several with the others in a fold, each with what is wrong there."""
    first, *others = list(runs.items())[:LISTED]
    rest = len(runs) - LISTED
    more = f"and {rest:,} more in the table" if rest > 0 else None
    if not others:
        return element("div", _run(*first, pages))
    fold = element(
        "details",
        element("summary", f"and {plural(len(runs) - 1, 'more run')}"),
        element("ul", [element("li", _run(*one, pages)) for one in others]),
        element("p", more, class_="quiet") if more else None,
        class_="more-runs",
    )
    return element("div", _run(*first, pages), fold)


def _run(name: str, title: str, pages: Mapping[str, str]) -> list[Child]:
    said, shown = escaping.shortened(title, _LONGEST), element("code", escaping.shortened(name, _LONGEST))
    page = pages.get(name)
    return [element("a", shown, href=page) if page else shown, element("span", said, class_="detail")]


def _errors(summary: Summary, pages: Mapping[str, str]) -> Markup | None:
    if not summary.errors:
        return None
    listed = [element("li", _run(run, reason, pages)) for run, reason in summary.errors[:LISTED]]
    rest = len(summary.errors) - LISTED
    return element(
        "section",
        element("h2", f"{plural(len(summary.errors), 'run')} could not be judged"),
        element("div", element("ul", listed, class_="notes"), class_="card"),
        element("p", f"and {rest:,} more in the table", class_="quiet") if rest > 0 else None,
    )
