"""Stacked bars: what a whole consists of, at each x."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tracelyze import formatting
from tracelyze.diagnosis import KINDS, Line
from tracelyze.reports import escaping
from tracelyze.reports.drawing import axes
from tracelyze.reports.markup import Markup, element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracelyze.diagnosis import Chart
    from tracelyze.reports.drawing.axes import Axis

FEW: Final = 8
"""Bars up to which each gets a row of its own."""

_SMALL = 0.02
"""Part of the whole below which the parts of bars that lie are one: narrower than what a reader can tell apart."""

_GAPS_UP_TO = 60  # bars; more of them stand close together
_TOUCHING = 0.86  # of the distance of two bars


@dataclass(frozen=True)
class Stacked:
    """A line with where its part of each bar begins and ends on the y axis."""

    line: Line
    spans: list[tuple[float, float]]

    @property
    def mean(self) -> float:
        """Mean height of the part over all bars."""
        return sum(high - low for low, high in self.spans) / len(self.spans) if self.spans else 0.0


def are_drawn(chart: Chart) -> bool:
    """Whether the chart is one of stacked bars."""
    return any(line.style == "bars" for line in chart.lines)


def stacked(chart: Chart) -> list[Stacked]:
    """The parts of each bar on top of each other, in the order of the lines; what is not a number is nothing."""
    tops = [0.0] * len(chart.x)
    found = []
    for line in chart.lines:
        if line.style != "bars":
            continue
        spans = []
        for index, top in enumerate(tops):
            value = line.y[index] if index < len(line.y) else None
            height = value if value is not None and math.isfinite(value) and value > 0 else 0.0
            spans.append((top, top + height))
            tops[index] = top + height
        found.append(Stacked(line, spans))
    return found


def lying(chart: Chart) -> list[Stacked]:
    """The parts as few bars show them: several small ones are one, at the end."""
    parts = stacked(chart)
    whole = sum(part.mean for part in parts)
    small = [part for part in parts if part.mean < _SMALL * whole]
    if len(small) < 2:
        return parts
    heights = [sum(high - low for low, high in column) for column in zip(*(part.spans for part in small), strict=True)]
    named = Line(f"{len(small)} smaller parts", [float(height) for height in heights], "bars", "other")
    kept = [part.line for part in parts if part not in small]
    return stacked(replace(chart, lines=[*kept, named]))


def width(chart: Chart) -> float:
    """Distance of two neighbouring bars on the x axis."""
    known = sorted({value for value in chart.x if math.isfinite(value)})
    distances = [after - before for before, after in itertools.pairwise(known)]
    return min(distances, default=1.0) or 1.0


def scales(chart: Chart) -> tuple[Axis, Axis]:
    """Axes on which every bar stands whole, from zero on."""
    half = width(chart) / 2
    known = [value for value in chart.x if math.isfinite(value)] or [0.0]
    whole = all(value.is_integer() for value in map(float, known))
    x = axes.linear([min(known) - half, max(known) + half], whole=whole)
    top = max((high for one in stacked(chart) for _, high in one.spans), default=0.0)
    return x, axes.linear([0.0, top or 1.0], ticks=4)


def shapes(chart: Chart, x: Axis, y: Axis, across: float, height: float) -> Iterator[Markup]:
    """One path a line, in units of which the plot is `across` wide and `height` high."""
    thick = width(chart) * (_TOUCHING if len(chart.x) <= _GAPS_UP_TO else 1.0)
    for one in stacked(chart):
        parts = []
        for at, (low, high) in zip(chart.x, one.spans, strict=True):
            left, right = x.fraction(at - thick / 2), x.fraction(at + thick / 2)
            bottom, top = y.fraction(low), y.fraction(high)
            if left is None or right is None or bottom is None or top is None or high <= low:
                continue
            begin, end = _short(left * across), _short(right * across)
            parts.append(f"M{begin} {_short(height * (1 - bottom))}V{_short(height * (1 - top))}H{end}")
            parts.append(f"V{_short(height * (1 - bottom))}z")
        if parts:
            yield element("path", d="".join(parts), class_=f"bars {kind_class(one.line.kind)}")


def rows(chart: Chart) -> Markup:
    """Few bars lying on each other's left edge, one row for each x; a marked row says so."""
    parts = lying(chart)
    marked = {mark.x: mark.label for mark in chart.marks}
    name = escaping.one_line(chart.x_label).partition(" ")[0]
    totals = [sum(part.spans[index][1] - part.spans[index][0] for part in parts) for index in range(len(chart.x))]
    longest = max(totals, default=0.0) or 1.0
    drawn = [
        element(
            "div",
            element(
                "p",
                element("b" if at in marked else "span", f"{name} {axes.label(at)}"),
                element("span", f"{formatting.quantity(total, chart.unit)}", class_="quiet"),
                element("span", marked[at], class_="tag critical") if marked.get(at) else None,
            ),
            element(
                "div",
                [_segment(part, index) for part in parts if part.spans[index][1] > part.spans[index][0]],
                class_="stack-bar",
                style=f"width:{100 * total / longest:.2f}%",
            ),
            class_="bar-row",
        )
        for index, (at, total) in enumerate(zip(chart.x, totals, strict=True))
    ]
    return element("div", drawn, class_="bar-rows", role="img", aria_label=said(chart))


def said(chart: Chart) -> str:
    """The mean of each part in words."""
    means = (
        f"{escaping.one_line(part.line.name)}: {formatting.quantity(part.mean, chart.unit)}" for part in stacked(chart)
    )
    return f"{escaping.one_line(chart.title)}. On average {', '.join(means)}."


def _segment(part: Stacked, index: int) -> Markup:
    low, high = part.spans[index]
    return element("i", class_=f"segment {kind_class(part.line.kind)}", style=f"flex:{high - low:.4g} 0 0")


def kind_class(kind: str) -> str:
    """The class of the style sheet that gives a kind its colour; `k-other` for what is none of KINDS."""
    return f"k-{kind}" if kind in KINDS else "k-other"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
