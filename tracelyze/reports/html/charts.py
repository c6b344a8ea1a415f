"""A chart on the page: its title, the drawing, its legend, and what the drawing has no room to say."""

from __future__ import annotations

import base64
import gzip
from typing import TYPE_CHECKING

from tracelyze.reports import escaping, figures, svg, words
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.diagnosis import Chart

_NAME = 80  # characters of a name in the legend
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
        element("li", _swatch(index, line.style), escaping.shortened(line.name, _NAME))
        for index, line in enumerate(chart.lines[:LEGEND])
    ]
    if len(chart.lines) > LEGEND:
        shown.append(element("li", f"and {words.plural(len(chart.lines) - LEGEND, 'more line')}"))
    return element("ul", shown, class_="legend")


def _swatch(index: int, style: str) -> Markup:
    shape = element(
        "path",
        d="M6 5h.01M18 5h.01" if style == "points" else "M1 5h22",
        class_=f"{'dots' if style == 'points' else 'stroke'} s{index % svg.STYLES}",
    )
    return element("svg", shape, viewBox="0 0 24 10", class_="swatch", aria_hidden="true")


def _aside(chart: Chart) -> Child:
    """Marks that the drawing has no room to name."""
    rest = svg.unlabelled(chart)
    if not rest:
        return None
    said = "; ".join(
        f"{escaping.shortened(escaping.one_line(mark.label), 200)} ({words.number(mark.x)})" for mark in rest[:20]
    )
    more = f"; and {len(rest) - 20:,} more" if len(rest) > 20 else ""
    return element("p", f"Also marked: {said}{more}.", class_="quiet")
