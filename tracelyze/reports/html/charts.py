"""A chart on the page: its title, the drawing, its legend, and what the drawing has no room to say."""

from __future__ import annotations

import base64
import gzip
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import bars, escaping, figures, svg
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.diagnosis import Chart, Line

_NAME = 80  # characters of a name in the legend
_SINGLE_BARS = 8  # bars that get a column each in the table
LEGEND = 16  # names; more lines than that are told apart by the interactive chart only


class Gallery:
    """The charts of one page in their order, so that each is drawn once and its figure can be found by number."""

    def __init__(self) -> None:
        self.charts: list[Chart] = []

    def show(self, chart: Chart, onset: bool = True) -> Markup:
        """The chart as a `<figure>`."""
        number = len(self.charts)
        self.charts.append(chart)
        return element(
            "figure",
            element("figcaption", chart.title),
            _legend(chart),
            element("div", svg.draw(chart, f"chart-{number}", onset), class_="canvas"),
            _aside(chart),
            _numbers(chart),
            element("button", "Zoom and hover", type="button", class_="zoom", data_figure=number, hidden=True),
            class_="chart",
        )

    def figures(self) -> str:
        """All charts as plotly figures: JSON, gzip, base64."""
        text = escaping.json_text([figures.figure(chart) for chart in self.charts])
        return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _legend(chart: Chart) -> Child:
    if len(chart.lines) < 2:
        return None
    shown = [
        element("li", _swatch(index, line), escaping.shortened(line.name, _NAME))
        for index, line in enumerate(chart.lines[:LEGEND])
    ]
    if len(chart.lines) > LEGEND:
        shown.append(element("li", f"and {formatting.plural(len(chart.lines) - LEGEND, 'more line')}"))
    return element("ul", shown, class_="legend")


def kind_swatch(kind: str) -> Markup:
    """The colour of a kind, for a legend."""
    shape = element("rect", width=24, height=10, rx=2, class_=f"bars {bars.kind_class(kind)}")
    return element("svg", shape, viewBox="0 0 24 10", class_="swatch", aria_hidden="true")


def _swatch(index: int, line: Line) -> Markup:
    if line.style == "bars":
        return kind_swatch(line.kind)
    style = line.style
    shape = element(
        "path",
        d="M6 5h.01M18 5h.01" if style == "points" else "M1 5h22",
        class_=f"{'dots' if style == 'points' else 'stroke'} s{index % svg.STYLES}",
    )
    return element("svg", shape, viewBox="0 0 24 10", class_="swatch", aria_hidden="true")


def _numbers(chart: Chart) -> Child:
    """What the bars of a chart say, as a table: the mean of each part, its share, and each bar where they are few."""
    parts = bars.stacked(chart)
    if not parts:
        return None
    total = sum(high - low for part in parts for low, high in part.spans)
    single = range(len(chart.x)) if len(chart.x) <= _SINGLE_BARS else range(0)
    unit = escaping.one_line(chart.y_label)
    name = escaping.one_line(chart.x_label).partition(" ")[0]
    heads = ["", f"Mean, {unit}", "Share", *(f"{name} {formatting.number(chart.x[index])}" for index in single)]
    rows = []
    for part in parts:
        heights = [high - low for low, high in part.spans]
        said = [
            formatting.number(float(f"{sum(heights) / len(heights):.4g}")),
            formatting.percent(sum(heights) / total if total else 0.0),
            *(formatting.number(float(f"{heights[index]:.4g}")) for index in single),
        ]
        cells = [
            element("td", one, class_="number", data_label=head) for one, head in zip(said, heads[1:], strict=True)
        ]
        rows.append(element("tr", element("th", escaping.shortened(part.line.name, _NAME), scope="row"), cells))
    return in_numbers(heads, rows)


def in_numbers(heads: list[str], rows: list[Markup]) -> Markup:
    """A table that unfolds: what a picture shows, for readers without it."""
    return element(
        "details",
        element("summary", "In numbers"),
        element(
            "div",
            element(
                "table",
                element("thead", element("tr", [element("th", head, scope="col") for head in heads])),
                element("tbody", rows),
                class_="evidence",
            ),
            class_="wide",
        ),
        class_="numbers",
    )


def _aside(chart: Chart) -> Child:
    """Marks that the drawing has no room to name."""
    rest = svg.unlabelled(chart)
    if not rest:
        return None
    said = "; ".join(
        f"{escaping.shortened(escaping.one_line(mark.label), 200)} ({formatting.number(mark.x)})" for mark in rest[:20]
    )
    more = f"; and {len(rest) - 20:,} more" if len(rest) > 20 else ""
    return element("p", f"Also marked: {said}{more}.", class_="quiet")
