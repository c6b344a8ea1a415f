"""Charts on the page: cards with one step axis, captions, legends, values as a table. No chart is drawn twice."""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tracelyze import formatting
from tracelyze.reports import escaping
from tracelyze.reports.drawing import axes, bars, figures, labels, svg
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.diagnosis import Chart, Line

EXPLORE_FROM: Final = 1000
"""Values in a chart from which on it can be explored: more than a screen has pixels across for them."""

LEGEND: Final = 16
"""Names in a legend; more lines than that are named in the interactive chart only."""

_NAME = 80  # characters of a name in the legend
_SINGLE_BARS = 8  # bars that get a column each in the table
_ROWS = 12  # rows of a table of values
_ENOUGH = 3  # values since the onset, from which on a card says what they came to
_FALLEN = 0.2  # of its first values: a loss that came down by this much looks healthy
_NEAR = 5  # values before the onset, and at the end, which are compared: by chance they lie apart once in 126 times
_CHANGED = 0.2  # of the value before the onset


@dataclass(frozen=True)
class Shown:
    """A chart with where it stands in the diagnosis, as the page's data: `findings.0.charts.1`.

    `placed`: the labels of its marks begin with where they stand.
    """

    chart: Chart
    path: str
    placed: bool = False


class Gallery:
    """The charts of one page in their order: each is drawn once, and those worth it can be explored."""

    def __init__(self, data: bool = True) -> None:
        self._drawn: set[object] = set()
        self._of_ranks: set[tuple[str, str]] = set()
        self._data = data
        self.explored: list[Chart] = []

    def cards(self, shown: Sequence[Shown], onset: bool = True, take: bool = True) -> list[Markup]:
        """A card for the charts over steps, and one for each other chart; those drawn before are left out."""
        fresh = [one for one in shown if self._is_new(one.chart)]
        stepped = [one for one in fresh if one.chart.over == "steps" and not bars.are_drawn(one.chart)]
        groups = ([stepped] if stepped else []) + [[one] for one in fresh if one not in stepped]
        return [self._card(group, onset, take) for group in groups]

    def figures(self) -> str:
        """The charts that can be explored as plotly figures: JSON, gzip, base64."""
        text = escaping.json_text([figures.figure(chart) for chart in self.explored])
        return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()

    def _is_new(self, chart: Chart) -> bool:
        places = {at for line in chart.lines for at, value in zip(chart.x, line.y, strict=False) if _finite(value)}
        if len(places) < (1 if bars.are_drawn(chart) else 2):  # one point shows nothing
            return False
        key = _identity(chart)
        known = key in self._drawn
        self._drawn.add(key)
        if chart.rank is not None:
            self._of_ranks.add((chart.title, chart.y_label))
        return not known

    def draws_another_rank(self, chart: Chart) -> bool:
        """Whether what this chart shows of one rank is drawn of another one already."""
        return chart.rank is not None and (chart.title, chart.y_label) in self._of_ranks

    def _card(self, group: Sequence[Shown], onset: bool, take: bool) -> Markup:
        x = svg.span([one.chart for one in group])
        drawn = [self._figure(one, x, index, index == len(group) - 1, onset) for index, one in enumerate(group)]
        heading = conclusion(group[0].chart) if take and onset else ""
        everywhere = " in all of them" if len(group) > 1 else ""
        unit = labels.position(group[0].chart.x_label)
        hint = f"Point at a chart, or focus it and press ← →, to read one {unit}{everywhere}."
        tables = [_values(one.chart) for one in group]
        return element(
            "div",
            element("h3", heading, class_="take") if heading else None,
            drawn,
            element("p", hint, class_="hint", hidden=True),
            element("details", element("summary", "Values as a table"), tables, class_="fold"),
            class_="card charts",
            data_crosshair=self._data and not _is_lying(group[0].chart),
            role="group",
            aria_label=f"{escaping.one_line(group[0].chart.title)}: charts. Left and right arrow keys read the values.",
        )

    def _figure(self, one: Shown, x: axes.Axis, index: int, last: bool, onset: bool) -> Markup:
        chart = one.chart
        own = x if not bars.are_drawn(chart) else None
        lying = _is_lying(chart)
        height = svg.TALL if index == 0 else svg.SHORT
        # Labels of the marks stand once, at the first chart of the card.
        plain = chart if index == 0 else replace(chart, marks=[replace(mark, label="") for mark in chart.marks])
        button = None
        if sum(len(line.y) for line in chart.lines) >= EXPLORE_FROM:
            button = element(
                "button", "Zoom and pan", type="button", class_="explore", data_figure=len(self.explored), hidden=True
            )
            self.explored.append(chart)
        return element(
            "figure",
            element(
                "figcaption",
                element("b", chart.title),
                element("span", _qualified(chart)),
                None if lying else _legend(chart),
                element("output"),
            ),
            element("div", bars.rows(chart) if lying else svg.draw(plain, own, height, last, onset), class_="canvas"),
            _legend(chart) if lying else None,
            _unnamed(one, own) if index == 0 and not lying else None,
            button,
            class_="chart",
            data_chart=one.path,
        )


def conclusion(chart: Chart) -> str:
    """What the chart proves: its value before the onset and its last one; empty where the onset is the beginning."""
    if not chart.marks or len(chart.lines) != 1 or bars.are_drawn(chart):
        return ""
    onset = chart.marks[0].x
    known = [
        (at, value)
        for at, value in zip(chart.x, chart.lines[0].y, strict=False)
        if value is not None and math.isfinite(value)
    ]
    before, after = [pair for pair in known if pair[0] < onset], [pair for pair in known if pair[0] >= onset]
    if not before or len(after) < _ENOUGH or abs(after[-1][1] - before[-1][1]) < _CHANGED * abs(before[-1][1]):
        return ""
    if chart.shows == "loss" and after[-1][1] < before[-1][1]:
        return ""  # A loss that falls proves nothing.
    if not _apart([value for _, value in before[-_NEAR:]], [value for _, value in after[-_NEAR:]]):
        return ""
    values = (formatting.quantity(before[-1][1], chart.unit), formatting.quantity(after[-1][1], chart.unit))
    if values[0] == values[1]:
        return ""
    unit = labels.position(chart.x_label)
    before_it, last = f"before {unit} {axes.label(onset)}", f"at {unit} {axes.label(after[-1][0])}"
    return f"{escaping.one_line(chart.title)}: {values[0]} {before_it}, {values[1]} {last}"


def _apart(before: list[float], after: list[float]) -> bool:
    """Whether all values of one stretch lie above all of the other: one of each may differ by noise alone."""
    return max(before) < min(after) or max(after) < min(before)


def proves_nothing(chart: Chart) -> bool:
    """Whether this is a loss that falls as it should, with nothing marked in it: no argument for any fault.

    A mark at its very beginning is none, unless another line, that of validation, does not fall, or it marks a loss
    that is no number: then the line has gaps.
    """
    first = min(chart.x, default=0.0)
    if chart.shows != "loss" or any(mark.x > first or mark.kind == "not-finite" for mark in chart.marks):
        return False
    lines = chart.lines if chart.marks else chart.lines[:1]
    return bool(lines) and all(_falls(line) for line in lines)


def _falls(line: Line) -> bool:
    """Whether the values are finite, and lower in the last fifth than in the first."""
    values = [value for value in line.y if value is not None]
    part = max(len(values) // 5, 1)
    if not all(map(math.isfinite, values)) or len(values) < 2 * part:
        return False
    begin, end = sorted(values[:part])[part // 2], sorted(values[-part:])[part // 2]
    return end < begin - _FALLEN * abs(begin)


def kind_swatch(kind: str) -> Markup:
    """The color of a kind, for a legend."""
    shape = element("rect", width=24, height=10, rx=2, class_=f"bars {bars.kind_class(kind)}")
    return element("svg", shape, viewBox="0 0 24 10", class_="swatch", aria_hidden="true")


def in_numbers(heads: list[str], rows: list[Markup]) -> Markup:
    """A table that unfolds: what a picture shows, for readers without it."""
    return element("details", element("summary", "In numbers"), _table(heads, rows), class_="fold")


def _identity(chart: Chart) -> object:
    """What makes two charts the same picture, whatever they mark and however they were thinned."""
    ends = []
    for line in chart.lines:
        known = [value for value in line.y if _finite(value)]
        ends.append((line.name, known[0], known[-1]) if known else (line.name,))
    return chart.title, chart.about, chart.x_label, chart.y_label, tuple(ends)


def _qualified(chart: Chart) -> str:
    """Rank, unit and scale, as far as the title does not say them."""
    unit = chart.unit or escaping.one_line(chart.y_label)
    said = [escaping.one_line(chart.about)]
    said += [unit] if unit not in ("", "share") and unit.lower() not in chart.title.lower() else []
    said += ["log scale"] if svg.is_log(chart) else []
    return ", ".join(part for part in said if part)


def _is_lying(chart: Chart) -> bool:
    """Whether the chart is drawn as a row for each of few bars."""
    return bars.are_drawn(chart) and len(chart.x) <= bars.FEW


def _legend(chart: Chart) -> Child:
    if len(chart.lines) < 2:
        return None
    if _is_lying(chart):
        return _legend_of_parts(chart)
    shown = [
        element("li", _swatch(index, line), escaping.shortened(line.name, _NAME))
        for index, line in enumerate(chart.lines[:LEGEND])
    ]
    if len(chart.lines) > LEGEND:
        shown.append(element("li", f"and {formatting.plural(len(chart.lines) - LEGEND, 'more line')}"))
    return element("ul", shown, class_="legend")


def _legend_of_parts(chart: Chart) -> Markup:
    """Each part, with its mean where all bars look about the same; all of them in one unit."""
    parts = bars.lying(chart)
    alike = all(map(_alike, parts))
    said = formatting.in_one_unit([part.mean for part in parts], chart.unit)
    shown = [
        element(
            "li",
            kind_swatch(part.line.kind),
            escaping.shortened(part.line.name, _NAME),
            [" ", element("b", mean)] if alike else None,
        )
        for part, mean in zip(parts, said, strict=True)
    ]
    return element("ul", shown, class_="legend")


def _alike(part: bars.Stacked) -> bool:
    """Whether all bars have about as much of a part, so that its mean stands for each of them."""
    heights = [high - low for low, high in part.spans]
    return max(heights, default=0.0) - min(heights, default=0.0) <= 2 * _CHANGED * part.mean


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


def _values(chart: Chart) -> Markup:
    heads, rows = _of_bars(chart) if bars.are_drawn(chart) else _of_lines(chart)
    return element("div", element("p", element("b", chart.title)), _table(heads, rows))


def _of_bars(chart: Chart) -> tuple[list[str], list[Markup]]:
    """The mean of each part, its share, and each bar where they are few."""
    parts = bars.stacked(chart)
    total = sum(high - low for part in parts for low, high in part.spans)
    single = range(len(chart.x)) if len(chart.x) <= _SINGLE_BARS else range(0)
    unit = escaping.one_line(chart.y_label)
    name = labels.position(chart.x_label).partition(" ")[0]
    heads = ["Part", f"Mean, {unit}", "Share", *(f"{name} {formatting.number(chart.x[index])}" for index in single)]
    rows = []
    for part in parts:
        heights = [high - low for low, high in part.spans]
        said = [
            formatting.number(sum(heights) / len(heights)),
            formatting.percent(sum(heights) / total if total else 0.0),
            *(formatting.number(heights[index]) for index in single),
        ]
        rows.append(_row(escaping.shortened(part.line.name, _NAME), said, heads))
    return heads, rows


def _of_lines(chart: Chart) -> tuple[list[str], list[Markup]]:
    """The values at the marks, at both ends and at even distances between them."""
    places = sorted(
        {round(index * (len(chart.x) - 1) / (_ROWS - 5)) for index in range(_ROWS - 4)} if chart.x else set()
    )
    for mark in chart.marks[:4]:
        if chart.x and math.isfinite(mark.x):
            places.append(min(range(len(chart.x)), key=lambda index: abs(chart.x[index] - mark.x)))
    heads = [
        labels.position(chart.x_label).capitalize(),
        *(escaping.shortened(line.name, _NAME) for line in chart.lines[:LEGEND]),
    ]
    rows = [
        _row(
            axes.label(chart.x[index]),
            [_value(chart, line, index) for line in chart.lines[:LEGEND]],
            heads,
        )
        for index in sorted(set(places))
    ]
    return heads, rows


def _value(chart: Chart, line: Line, index: int) -> str:
    value = line.y[index] if index < len(line.y) else None
    return formatting.quantity(value, chart.unit) if value is not None else "not measured"


def _row(name: str, said: Sequence[str], heads: Sequence[str]) -> Markup:
    cells = [element("td", one, class_="number", data_label=head) for one, head in zip(said, heads[1:], strict=True)]
    return element("tr", element("th", name, scope="row"), cells)


def _table(heads: Sequence[str], rows: Sequence[Markup]) -> Markup:
    """A table in a box that scrolls by itself, also with the keyboard."""
    first, *others = heads
    head = [element("th", first, scope="col"), *(element("th", one, scope="col", class_="number") for one in others)]
    table = element("table", element("thead", element("tr", head)), element("tbody", rows), class_="stacked")
    return element("div", table, class_="wide", tabindex="0", role="group", aria_label="Values")


def _unnamed(one: Shown, x: axes.Axis | None) -> Child:
    """Marks that the drawing has no room to name."""
    rest = [mark for mark in svg.unlabelled(one.chart, x) if mark.label]
    if not rest:
        return None
    names = [escaping.shortened(escaping.one_line(mark.label), 200) for mark in rest[:20]]
    if not one.placed:
        names = [f"{name} ({formatting.number(mark.x)})" for name, mark in zip(names, rest, strict=False)]
    said = "; ".join(names)
    more = f"; and {len(rest) - 20:,} more" if len(rest) > 20 else ""
    return element("p", f"Also marked: {said}{more}.", class_="quiet small also-marked")


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
