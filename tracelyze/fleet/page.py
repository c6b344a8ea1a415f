"""The page of a fleet: what goes wrong most, what it costs, in which runs, since when. Offline, without script."""

from __future__ import annotations

from typing import Final

from tracelyze.fleet.summary import Fault, Summary
from tracelyze.formatting import duration, plural
from tracelyze.reports.html.head import asset, head
from tracelyze.reports.html.icons import icon
from tracelyze.reports.markup import Child, Markup, element
from tracelyze.version import __version__

LISTED: Final = 20  # runs of a fault, and errors, that are named on the page; the table holds all
_STYLE: Final = "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.4em .8em;vertical-align:top}"


def render(summary: Summary) -> str:
    """The whole page."""
    worst = next((name for name in ("critical", "warning", "info") if summary.verdicts.get(name)), "ok")
    main = element(
        "main",
        element(
            "header",
            element("h1", headline(summary)),
            element("p", ", ".join(f"{count} {name}" for name, count in summary.verdicts.items())),
            class_=f"hero {worst}",
        ),
        _faults(summary),
        _errors(summary),
        id="top",
    )
    body = element(
        "body",
        element("div", element("span", "tracelyze", class_="brand"), class_="bar"),
        main,
        element("footer", element("p", f"tracelyze {__version__}, fleet.")),
    )
    top = head(headline(summary), __version__, asset("report.css") + _STYLE, asset("theme.js"))
    return "<!DOCTYPE html>\n" + element("html", top, body, lang="en") + "\n"


def headline(summary: Summary) -> str:
    """The fleet in a sentence."""
    runs = plural(summary.runs, "run")
    if not summary.faults:
        return f"{runs}: nothing found"
    most = summary.faults[0]
    return f"{runs}: most often {most.rule}, in {len(most.runs)}"


def _faults(summary: Summary) -> Markup | None:
    if not summary.faults:
        return None
    names = ("root cause", "runs", "time lost", "since", "in")
    rows = [_fault(fault) for fault in summary.faults]
    table = element(
        "table", element("thead", element("tr", [element("th", name) for name in names])), element("tbody", rows)
    )
    return element("section", element("h2", "What goes wrong"), table)


def _fault(fault: Fault) -> Markup:
    cells: list[Child] = [
        [icon(fault.severity), " ", element("strong", fault.rule), element("br"), fault.title],
        f"{len(fault.runs)} of {fault.judged}",
        "not known" if fault.seconds is None else duration(fault.seconds),
        fault.since or "no single commit or host",
        _named(fault.runs),
    ]
    return element("tr", [element("td", cell) for cell in cells])


def _named(runs: list[str]) -> Markup:
    rest = len(runs) - LISTED
    return element(
        "details",
        element("summary", plural(len(runs), "run")),
        element("ul", [element("li", element("code", run)) for run in runs[:LISTED]]),
        element("p", f"and {rest} more in the table") if rest > 0 else None,
    )


def _errors(summary: Summary) -> Markup | None:
    if not summary.errors:
        return None
    listed = [element("li", element("code", run), ": ", reason) for run, reason in summary.errors[:LISTED]]
    rest = len(summary.errors) - LISTED
    return element(
        "section",
        element("h2", f"{plural(len(summary.errors), 'run')} could not be judged"),
        element("ul", listed),
        element("p", f"and {rest} more in the table") if rest > 0 else None,
    )
