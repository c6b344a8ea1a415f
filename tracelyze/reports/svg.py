"""Charts as inline SVG: readable without script, at any width, printed, in both themes.

The drawing is as wide as its box. Positions along x are percentages and lines keep their width when stretched, so
that words stay the same size on a telephone and on paper. Colours come from the style sheet of the page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.formatting import number, plural
from tracelyze.reports import axes, bars, escaping
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracelyze.diagnosis import Chart, Line, Mark
    from tracelyze.reports.axes import Axis

HEIGHT = 190  # of the plot itself, px
STYLES = 8  # colours with their dash patterns in the style sheet
_HEAD = 26  # px above the plot for the name of the y axis
_ROW = 16  # px for one row of mark labels
_FOOT = 38  # px below the plot for ticks and the name of the x axis
_CHARACTER = 6.4  # px, of a label on average
_NARROW = 300  # px: the plot on a telephone, for which labels are laid out
_WIDTH = 1000  # user units along x inside the stretched plot
_LONGEST_LABEL = 40  # characters
_LONGEST_END_LABEL = 16
_FEW = 40  # points


def draw(chart: Chart, ident: str, onset: bool = True) -> Markup:
    """The chart as one `<svg>` inside a box that leaves room for its labels.

    `ident` makes the ids of its title and description unique; with `onset` the time since the first mark is shaded.
    """
    x, y = _axes(chart)
    marks = _place(chart.marks, x)
    top = _HEAD + _ROW * _rows(marks)
    ends = _end_labels(chart, y)
    gutter = 12 + _CHARACTER * max((len(axes.label(tick)) for tick in y.ticks), default=1)
    drawing = element(
        "svg",
        element("title", escaping.one_line(chart.title), id=f"{ident}-title"),
        element("desc", describe(chart), id=f"{ident}-description"),
        _shade(chart.marks, x, top) if onset else None,
        _grid(x, y, top),
        element("text", _cut(chart.y_label, 44), x=-round(gutter) + 2, y=12, class_="name"),
        element("text", _cut(chart.x_label, 44), x="100%", y=top + HEIGHT + 34, class_="name end"),
        _lines(chart, x, y, top),
        _threshold(chart, y, top),
        _marks(marks, top, onset),
        [
            element("text", name, x="100%", dx=7, y=round(top + at + 4), class_=f"label end-label s{index % STYLES}")
            for index, name, at in ends
        ],
        role="img",
        aria_labelledby=f"{ident}-title {ident}-description",
        width="100%",
        height=top + HEIGHT + _FOOT,
        class_="drawing",
    )
    room = "plot labelled" if ends else "plot"
    return element("div", drawing, class_=room, style=f"padding-left:{round(gutter)}px")


def describe(chart: Chart) -> str:
    """The chart in words, for those who do not see it."""
    said = [f"{escaping.one_line(chart.y_label)} over {escaping.one_line(chart.x_label)}."]
    for line in chart.lines[:12]:
        known = [(at, value) for at, value in zip(chart.x, line.y, strict=False) if _finite(value)]
        if not known:
            said.append(f"{escaping.one_line(line.name)}: nothing to draw.")
            continue
        values = [value for _, value in known if value is not None]
        if line.style == "bars":
            said.append(f"{escaping.one_line(line.name)}: {number(sum(values) / len(values))} on average.")
            continue
        gaps = len(line.y) - len(known)
        said.append(
            f"{escaping.one_line(line.name)}: from {number(values[0])} at {number(known[0][0])} to "
            f"{number(values[-1])} at {number(known[-1][0])}, lowest {number(min(values))}, "
            f"highest {number(max(values))}" + (f", {plural(gaps, 'gap')}" if gaps else "") + "."
        )
    if chart.threshold is not None:
        said.append(f"Threshold {number(chart.threshold)} {escaping.one_line(chart.threshold_label)}".strip() + ".")
    said += [f"{escaping.one_line(mark.label)} at {number(mark.x)}." for mark in chart.marks[:12]]
    return " ".join(said)


def unlabelled(chart: Chart) -> list[Mark]:
    """The marks whose labels find no room in the drawing, so that the page can say them below it."""
    x, _ = _axes(chart)
    placed = _place(chart.marks, x)
    return [one.full for one in placed if one.row is None or one.label.endswith("…")]


def _axes(chart: Chart) -> tuple[Axis, Axis]:
    if bars.are_drawn(chart):
        return bars.scales(chart)
    whole = all(float(value).is_integer() for value in chart.x if math.isfinite(value))
    x = axes.linear([*chart.x, *(mark.x for mark in chart.marks)], whole=whole)
    values = [value for line in chart.lines for value in line.y if _finite(value)]
    if chart.log_y:
        y = axes.logarithmic([*values, chart.threshold], ticks=4)
        if y is not None:
            return x, y
    # A threshold far outside would flatten the lines; it is then named at the edge instead.
    near = chart.threshold if chart.threshold is not None and _near(chart.threshold, values) else None
    return x, axes.linear([*values, near], ticks=4, from_zero=True, room=0.04)


def _near(threshold: float, values: Sequence[float | None]) -> bool:
    finite = [value for value in values if value is not None]
    if not finite:
        return True
    low, high = min(finite), max(finite)
    reach = max(high - low, abs(high), abs(low)) * 1.5
    return low - reach <= threshold <= high + reach


def _grid(x: Axis, y: Axis, top: int) -> Child:
    bottom = top + HEIGHT
    lines: list[Child] = []
    for tick in y.ticks:
        at = round(bottom - HEIGHT * (y.fraction(tick) or 0.0), 1)
        lines.append(element("line", x1="0", x2="100%", y1=at, y2=at, class_="grid"))
        lines.append(element("text", axes.label(tick), x=-8, y=at + 4, class_="tick end"))
    for tick in x.ticks:
        at_x = _percent(x.fraction(tick))
        lines.append(element("line", x1=at_x, x2=at_x, y1=bottom, y2=bottom + 4, class_="axis"))
        lines.append(element("text", axes.label(tick), x=at_x, y=bottom + 18, class_="tick middle"))
    lines.append(element("line", x1="0", x2="100%", y1=bottom, y2=bottom, class_="axis"))
    return lines


def _lines(chart: Chart, x: Axis, y: Axis, top: int) -> Markup:
    paths: list[Child] = list(bars.shapes(chart, x, y, _WIDTH, HEIGHT))
    for index, line in enumerate(chart.lines):
        if line.style == "bars":
            continue
        for shape, data in _paths(line, chart.x, x, y):
            paths.append(
                element("path", d=data, class_=f"{shape} s{index % STYLES}", vector_effect="non-scaling-stroke")
            )
    return element(
        "svg",
        paths,
        x="0",
        y=top,
        width="100%",
        height=HEIGHT,
        viewBox=f"0 0 {_WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        overflow="visible",
    )


def _paths(line: Line, positions: Sequence[float], x: Axis, y: Axis) -> Iterator[tuple[str, str]]:
    """The path of a line, and the path of its points that stand alone between gaps."""
    strokes: list[str] = []
    dots: list[str] = []
    for run in _runs(line, positions, x, y):
        if line.style == "points" or len(run) == 1:
            dots += [f"M{across} {down}h.01" for across, down in run]
        elif line.style == "steps":
            steps = [f"H{across}V{down}" for across, down in run[1:]]
            strokes.append(f"M{run[0][0]} {run[0][1]}" + "".join(steps))
        else:
            strokes.append("M" + "L".join(f"{across} {down}" for across, down in run))
    if strokes:
        yield "stroke", "".join(strokes)
    if dots:
        # Few points among a line of many are drawn larger, on a rim, so that the line does not hide them.
        few = line.style == "points" and len(dots) <= _FEW
        if few:
            yield "rim", "".join(dots)
        yield "dots few" if few else "dots", "".join(dots)


def _runs(line: Line, positions: Sequence[float], x: Axis, y: Axis) -> Iterator[list[tuple[str, str]]]:
    """Stretches of neighbouring points that can be drawn, in user units."""
    run: list[tuple[str, str]] = []
    for at, value in zip(positions, line.y, strict=False):
        across, up = x.fraction(at), y.fraction(value)
        if across is None or up is None:
            if run:
                yield run
            run = []
        else:
            run.append((_short(across * _WIDTH), _short(HEIGHT * (1 - up))))
    if run:
        yield run


def _threshold(chart: Chart, y: Axis, top: int) -> Child:
    if chart.threshold is None:
        return None
    up = y.fraction(chart.threshold)
    if up is None:
        return None
    name = f"{_cut(chart.threshold_label) or 'threshold'}: {number(chart.threshold)}"
    if not 0 <= up <= 1:
        where = "far above" if up > 1 else "far below"
        edge = top + 12 if up > 1 else top + HEIGHT - 6
        return element("text", f"{name}, {where}", x="100%", dx=-4, y=edge, class_="label threshold end")
    at = round(top + HEIGHT * (1 - up), 1)
    below = up > 0.9
    return [
        element("line", x1="0", x2="100%", y1=at, y2=at, class_="threshold"),
        element("text", name, x="100%", dx=-4, y=at + (14 if below else -5), class_="label threshold end"),
    ]


def _shade(marks: Sequence[Mark], x: Axis, top: int) -> Child:
    start = x.fraction(marks[0].x) if marks else None
    if start is None:
        return None
    return element("rect", x=_percent(start), y=top, width=_percent(1 - start), height=HEIGHT, class_="since")


@dataclass(frozen=True)
class _Placed:
    """A mark in the drawing: where it stands, what of its label is shown, and in which row above the plot."""

    fraction: float
    label: str
    row: int | None
    full: Mark

    @property
    def leftwards(self) -> bool:
        """Labels run towards the side that has more room."""
        return self.fraction > 0.5


def _place(marks: Sequence[Mark], x: Axis) -> list[_Placed]:
    """The marks that can be drawn, each with the first row in which its label touches no other; else with none."""
    taken: list[list[tuple[float, float]]] = [[], [], []]
    placed: list[_Placed] = []
    for mark in marks:
        fraction = x.fraction(mark.x)
        if fraction is None:
            continue
        label = _cut(mark.label, int(max(fraction, 1 - fraction) * _NARROW / _CHARACTER))
        width = len(label) * _CHARACTER + 10
        left = fraction * _NARROW - (width if fraction > 0.5 else 0)
        free = (row for row, spans in enumerate(taken) if all(left + width < low or left > high for low, high in spans))
        row = next(free, None)
        if row is not None:
            taken[row].append((left, left + width))
        placed.append(_Placed(fraction, label, row, mark))
    return placed


def _rows(placed: Sequence[_Placed]) -> int:
    return max((one.row + 1 for one in placed if one.row is not None), default=0)


def _marks(placed: Sequence[_Placed], top: int, onset: bool) -> Child:
    drawn: list[Child] = []
    for index, one in enumerate(placed):
        kind = "mark onset" if onset and index == 0 else "mark"
        start = top if one.row is None else top - _ROW * (_rows(placed) - 1 - one.row) - 4
        at = _percent(one.fraction)
        drawn.append(element("line", x1=at, x2=at, y1=start, y2=top + HEIGHT, class_=kind))
        if one.row is not None:
            side = "end" if one.leftwards else "begin"
            drawn.append(
                element(
                    "text", one.label, x=at, dx=-3 if one.leftwards else 3, y=start - 3, class_=f"label {kind} {side}"
                )
            )
    return drawn


def _end_labels(chart: Chart, y: Axis) -> list[tuple[int, str, float]]:
    """Names of two to six lines beside their last points, moved apart so that they do not cover each other.

    None where a name is too long for the room; the legend says them all.
    """
    names = [escaping.one_line(line.name) for line in chart.lines if line.style != "bars"]
    if len(names) < len(chart.lines) or not 2 <= len(names) <= 6 or max(map(len, names)) > _LONGEST_END_LABEL:
        return []
    labels: list[tuple[float, int, str]] = []
    for index, line in enumerate(chart.lines):
        last = next((up for value in reversed(line.y) if (up := y.fraction(value)) is not None), None)
        if last is not None:
            labels.append((HEIGHT * (1 - last), index, names[index]))
    labels.sort()
    placed: list[tuple[int, str, float]] = []
    floor = 0.0
    for position, (at, index, name) in enumerate(labels):
        latest = HEIGHT - 14.0 * (len(labels) - 1 - position)
        floor = min(max(at, floor), latest)
        placed.append((index, name, floor))
        floor += 14
    return placed


def _cut(label: str, room: int = _LONGEST_LABEL) -> str:
    """The label on one line, cut to the room that a telephone has for it."""
    line = escaping.one_line(label)
    longest = min(room, _LONGEST_LABEL)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _percent(fraction: float | None) -> str:
    return f"{_short((fraction or 0.0) * 100, 2)}%"


def _short(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")
