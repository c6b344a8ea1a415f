"""Charts as static SVG with HTML labels: readable without scripts, at any width, printed, in both themes.

The drawing is stretched to the width of its box; lines keep their thickness. Every label is HTML placed in percent, so
that its size stays the same on a phone and on paper. Colors come from the style sheet of the page.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze import formatting
from tracelyze.reports import escaping
from tracelyze.reports.drawing import axes, bars, labels
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracelyze.diagnosis import Chart, Line, Mark
    from tracelyze.reports.drawing.axes import Axis

STYLES: Final = 8
"""Colors with their dash patterns in the style sheet."""

TALL: Final = 168
SHORT: Final = 120
"""Pixels: the height of the first chart of a card, and of the ones below it."""

_WIDTH: Final = 1000
_HEIGHT: Final = 300
"""Units of the stretched drawing."""

_FEW = 40  # points
_RARE = 8  # times the usual distance between two values: what lies between was not looked at
_LABEL_SPAN = 0.33  # share of a phone's plot that the label of the last value takes
_LABEL_HEIGHT = 0.16  # of a plot: what a label covers of it
_ROOM = 0.88  # of a plot: a line that reaches no higher leaves room for a label above it
_RULE = 0.008  # of a plot: what lies between a limit and its label
_FAR = 20  # times another line, and the smaller one lies flat in the lowest twentieth of the plot
_EDGE = 0.04  # share of the width within which a tick label would leave the plot


def draw(chart: Chart, x: Axis | None = None, height: int = TALL, scale: bool = True, onset: bool = True) -> Markup:
    """The plot of a chart: its y axis, the drawing with its labels, and the x axis unless `scale` is off.

    `x` is the axis that several charts share. With `onset` the first mark is drawn as the onset of a fault.
    """
    across, y = scales(chart, x)
    marks = labels.place(chart.marks, across)
    head = labels.ROW * labels.rows(marks)
    drawing = element(
        "svg",
        _healthy(chart, y),
        _grid(across, y),
        bars.shapes(chart, across, y, _WIDTH, _HEIGHT),
        _lines(chart, across, y),
        _limit(chart, y),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{escaping.one_line(chart.title)}. {describe(chart)}",
    )
    area = element(
        "div",
        drawing,
        labels.of_marks(marks, head, onset),
        _limit_label(chart, across, y),
        _last_label(chart, across, y),
        class_="area",
        data_x0=_plain(across.low),
        data_x1=_plain(across.high),
        data_lo=_plain(y.low),
        data_hi=_plain(y.high),
        data_log="1" if y.log else None,
    )
    return element(
        "div",
        _y_axis(chart, y),
        area,
        _x_axis(chart, across) if scale else None,
        class_="plot",
        style=f"--height:{height}px" + (f";--head:{head}px" if head else ""),
    )


def scales(chart: Chart, x: Axis | None = None) -> tuple[Axis, Axis]:
    """The axes of a chart; `x` where it shares one with others."""
    if bars.are_drawn(chart):
        own, y = bars.scales(chart)
        return own, y
    across = x or span([chart])
    values = [value for line in chart.lines for value in line.y if _finite(value)]
    if chart.log_y or _far_apart(chart):
        y_log = axes.logarithmic([*values, chart.threshold], ticks=4)
        if y_log is not None and y_log.high > axes.WIDE * y_log.low:
            return across, y_log
    # A limit far outside would flatten the lines; it is then named at the edge instead.
    near = chart.threshold if chart.threshold is not None and _near(chart.threshold, values) else None
    return across, axes.linear([*values, near], ticks=4, from_zero=True, room=0.04)


def _far_apart(chart: Chart) -> bool:
    """Whether one of the lines would lie flat at zero on a linear axis beside another one, such as the loss of what is
    known by heart beside that of what is not."""
    lines = [sorted(value for value in line.y if value is not None and math.isfinite(value)) for line in chart.lines]
    known = [values for values in lines if values]
    if len(known) < 2 or chart.unit == "share" or min(values[0] for values in known) <= 0:
        return False
    usual = [values[len(values) // 2] for values in known]
    return max(usual) > _FAR * min(usual)


def span(charts: Sequence[Chart]) -> Axis:
    """One x axis for several charts."""
    positions = [value for chart in charts for value in [*chart.x, *(mark.x for mark in chart.marks)]]
    whole = all(float(value).is_integer() for value in positions if math.isfinite(value))
    return axes.linear(positions, whole=whole)


def is_log(chart: Chart) -> bool:
    """Whether the y axis is drawn on a logarithmic scale."""
    return scales(chart)[1].log


def describe(chart: Chart) -> str:
    """The chart in words, for those who do not see it."""
    said = [f"{escaping.one_line(chart.y_label)} by {escaping.one_line(chart.x_label)}."]
    for line in chart.lines[:12]:
        known = [(at, value) for at, value in zip(chart.x, line.y, strict=False) if _finite(value)]
        if not known:
            said.append(f"{escaping.one_line(line.name)}: nothing to draw.")
            continue
        values = [value for _, value in known if value is not None]
        if line.style == "bars":
            said.append(f"{escaping.one_line(line.name)}: {formatting.number(sum(values) / len(values))} on average.")
            continue
        gaps = len(line.y) - len(known)
        first, last, low, high = map(formatting.number, (values[0], values[-1], min(values), max(values)))
        begin, end = formatting.number(known[0][0]), formatting.number(known[-1][0])
        said.append(
            f"{escaping.one_line(line.name)}: from {first} at {begin} to {last} at {end}, lowest {low}, highest {high}"
            + (f", {formatting.plural(gaps, 'gap')}" if gaps else "")
            + "."
        )
    if chart.threshold is not None:
        said.append(
            f"Limit {formatting.number(chart.threshold)} {escaping.one_line(chart.threshold_label)}".strip() + "."
        )
    said += [f"{escaping.one_line(mark.label)} at {formatting.number(mark.x)}." for mark in chart.marks[:12]]
    return " ".join(said)


def unlabelled(chart: Chart, x: Axis | None = None) -> list[Mark]:
    """The marks whose labels find no room in the drawing, so that the page can name them below it."""
    placed = labels.place(chart.marks, scales(chart, x)[0])
    return [one.full for one in placed if one.row is None or one.label.endswith("…")]


def _near(threshold: float, values: Sequence[float | None]) -> bool:
    finite = [value for value in values if value is not None]
    if not finite:
        return True
    low, high = min(finite), max(finite)
    reach = max(high - low, abs(high), abs(low)) * 1.5
    return low - reach <= threshold <= high + reach


def _grid(x: Axis, y: Axis) -> Child:
    rows = [_up(y.fraction(tick)) for tick in y.ticks]
    columns = [labels.short((x.fraction(tick) or 0.0) * _WIDTH) for tick in x.ticks]
    data = "".join(f"M0 {at}H{_WIDTH}" for at in rows) + "".join(f"M{at} 0V{_HEIGHT}" for at in columns)
    return element("path", d=data, class_="grid-line") if data else None


def _lines(chart: Chart, x: Axis, y: Axis) -> Child:
    paths: list[Child] = []
    for index, line in enumerate(chart.lines):
        if line.style != "bars":
            paths += [
                element("path", d=data, class_=f"{shape} s{index % STYLES}")
                for shape, data in _paths(line, chart.x, x, y)
            ]
    return paths


def _paths(line: Line, positions: Sequence[float], x: Axis, y: Axis) -> Iterator[tuple[str, str]]:
    """The path of a line, and the path of its points that stand alone between gaps."""
    strokes: list[str] = []
    sparse: list[str] = []
    dots: list[str] = []
    for run in _runs(line, positions, x, y):
        if line.style == "points" or len(run) == 1:
            dots += [f"M{across} {down}h.01" for across, down in run]
        elif line.style == "steps":
            steps = [f"H{across}V{down}" for across, down in run[1:]]
            strokes.append(f"M{run[0][0]} {run[0][1]}" + "".join(steps))
        else:
            parts = _dense(run)
            strokes += ["M" + "L".join(f"{across} {down}" for across, down in part) for part in parts if len(part) > 1]
            for before, after in itertools.pairwise(parts):
                sparse.append(f"M{before[-1][0]} {before[-1][1]}L{after[0][0]} {after[0][1]}")
            if len(parts) > 1:
                dots += [f"M{part[0][0]} {part[0][1]}h.01" for part in parts if len(part) == 1]
    if strokes:
        yield "stroke", "".join(strokes)
    if sparse:
        yield "stroke sparse", "".join(sparse)
    if dots:
        # Few points among a line of many are drawn larger, on a rim, so that the line does not hide them.
        few = line.style == "points" and len(dots) <= _FEW
        if few:
            yield "rim", "".join(dots)
        yield "dots few" if few else "dots", "".join(dots)


def _runs(line: Line, positions: Sequence[float], x: Axis, y: Axis) -> Iterator[list[tuple[str, str]]]:
    """Stretches of neighboring points that can be drawn, in units of the drawing."""
    run: list[tuple[str, str]] = []
    for at, value in zip(positions, line.y, strict=False):
        across, up = x.fraction(at), y.fraction(value)
        if across is None or up is None:
            if run:
                yield run
            run = []
        else:
            run.append((labels.short(across * _WIDTH), _up(up)))
    if run:
        yield run


def _dense(run: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """A stretch cut where it was looked at far more rarely than elsewhere."""
    gaps = sorted(float(after[0]) - float(before[0]) for before, after in itertools.pairwise(run))
    rare = _RARE * gaps[len(gaps) // 2] if gaps else 0.0
    parts = [run[:1]]
    for before, after in itertools.pairwise(run):
        if rare and float(after[0]) - float(before[0]) > rare:
            parts.append([])
        parts[-1].append(after)
    return parts


def _limit(chart: Chart, y: Axis) -> Child:
    up = y.fraction(chart.threshold)
    if up is None or not 0 <= up <= 1:
        return None
    return element("path", d=f"M0 {_up(up)}H{_WIDTH}", class_="healthy-limit" if chart.healthy else "limit")


def _healthy(chart: Chart, y: Axis) -> Child:
    """The healthy side of the limit, shaded where it lies in the plot."""
    up = y.fraction(chart.threshold)
    if up is None or not chart.healthy or not 0 <= up <= 1:
        return None
    top = 0.0 if chart.healthy == "above" else _HEIGHT * (1 - up)
    height = _HEIGHT * (1 - up) if chart.healthy == "above" else _HEIGHT * up
    return element("rect", x=0, y=labels.short(top), width=_WIDTH, height=labels.short(height), class_="healthy")


def _limit_label(chart: Chart, x: Axis, y: Axis) -> Child:
    """What the limit means, at its end; at its beginning where the lines leave more room."""
    up = y.fraction(chart.threshold)
    if chart.threshold is None or up is None:
        return None
    said = labels.cut(chart.threshold_label) or "limit"
    number = axes.label(chart.threshold)
    name = said if number in said else f"{said}: {number}"
    kind = "healthy-label" if chart.healthy else "limit-label"
    if not 0 <= up <= 1:
        edge = "top:4px" if up > 1 else "bottom:4px"
        far = "far above" if up > 1 else "far below"
        return element("span", f"{name}, {far}", class_=f"chart-label {kind} end", style=f"left:100%;{edge}")
    inside = up > 0.85 or (chart.healthy == "below" and up > 0.1)
    # Where the lines leave most room: at either end, on the side of the limit that it speaks of or on the other.
    sides = [under for under in (inside, not inside) if (up if under else 1 - up) > _LABEL_HEIGHT] or [inside]
    places = [(end, under) for under in sides for end in (True, False)]
    end, under = min(places, key=lambda place: _hidden(chart, x, y, up, *place))
    side = f"top:calc({labels.percent(1 - up)} + 2px)" if under else f"bottom:calc({labels.percent(up)} + 2px)"
    at = "left:100%" if end else "left:6px"
    return element("span", name, class_=f"chart-label {kind}{' end' if end else ''}", style=f"{at};{side}")


def _hidden(chart: Chart, x: Axis, y: Axis, up: float, end: bool, under: bool) -> int:
    """How many values a label of a limit hides at the end or the beginning of the limit, under it or over it. To hide
    the label of the last value is as bad as to hide them all."""
    near, far = up - _RULE if under else up + _RULE, up - _LABEL_HEIGHT if under else up + _LABEL_HEIGHT
    band = (min(near, far), max(near, far))
    last = _last_value(chart, x, y) if end else None
    covers = last is not None and last.band[0] < band[1] and band[0] < last.band[1]
    return _within(chart, x, y, band, (0.7, 1.0) if end else (0.0, 0.3)) + covers * len(chart.x)


def _within(chart: Chart, x: Axis, y: Axis, band: tuple[float, float], part: tuple[float, float]) -> int:
    """How many values lie in this band of the y axis, in this part of the x axis."""
    count = 0
    for line in chart.lines:
        for at, value in zip(chart.x, line.y, strict=False):
            across, up = x.fraction(at), y.fraction(value)
            if across is not None and up is not None:
                count += part[0] <= across <= part[1] and band[0] <= up <= band[1]
    return count


class _LastValue(NamedTuple):
    """The last value of a line, and where its label stands, as shares of the plot. `above`: the line, or below it."""

    value: float
    at: float
    across: float
    above: bool
    band: tuple[float, float]


def _last_value(chart: Chart, x: Axis, y: Axis) -> _LastValue | None:
    """The last value of the only line, where there is room for it next to its end."""
    if len(chart.lines) != 1 or chart.lines[0].style not in ("line", "steps"):
        return None
    known = [(at, value) for at, value in zip(chart.x, chart.lines[0].y, strict=False) if y.fraction(value) is not None]
    if len(known) < 2:
        return None
    (at, value) = known[-1]
    across, up = x.fraction(at), y.fraction(value)
    if value is None or across is None or up is None or across < 0.5:
        return None
    near = [one for place, one in known if (x.fraction(place) or 0.0) > across - _LABEL_SPAN]
    high = max((y.fraction(one) or 0.0) for one in near)
    low = min((y.fraction(one) or 0.0) for one in near)
    # Where the line leaves room: above what it reached near its end, else below.
    if high < _ROOM:
        return _LastValue(value, at, across, True, (high, high + _LABEL_HEIGHT))
    return _LastValue(value, at, across, False, (low - _LABEL_HEIGHT, low)) if low >= 1 - _ROOM else None


def _last_label(chart: Chart, x: Axis, y: Axis) -> Child:
    """The last value of the only line, next to its end."""
    last = _last_value(chart, x, y)
    if last is None:
        return None
    place = (
        f"bottom:calc({labels.percent(last.band[0])} + 3px)"
        if last.above
        else f"top:calc({labels.percent(1 - last.band[1])} + 3px)"
    )
    unit = labels.position(chart.x_label).split()[-1]  # `step` of `optimizer step`
    where = f"{labels.cut(unit, 12)} {axes.label(last.at)}"  # the run may go on after it
    said = f"{formatting.quantity(last.value, chart.unit)} at {where}"
    return element("span", said, class_="chart-label last end s0", style=f"left:{labels.percent(last.across)};{place}")


def _y_axis(chart: Chart, y: Axis) -> Markup:
    ticks = [
        element("span", axes.tick(tick, chart.unit), style=f"top:{labels.percent(1 - (y.fraction(tick) or 0.0))}")
        for tick in y.ticks
    ]
    return element("div", ticks, class_="y-axis", aria_hidden="true")


def _x_axis(chart: Chart, x: Axis) -> Markup:
    """Ticks, and the name of the axis with its last position, which makes room for itself."""
    unit = escaping.one_line(chart.x_label)
    last = f"{labels.cut(unit, 24)} {axes.label(x.high)}".strip()
    room = 1 - (len(last) * labels.CHARACTER + 24) / labels.NARROW
    ticks: list[Child] = []
    for index, tick in enumerate(x.ticks):
        at = x.fraction(tick) or 0.0
        if at > room and not bars.are_drawn(chart):
            # On a wide screen there is room for more ticks than on a phone.
            if at > 1 - (len(last) * labels.CHARACTER + 24) / 900:
                continue
            ticks.append(element("span", axes.label(tick), class_="optional", style=f"left:{labels.percent(at)}"))
            continue
        kind = "begin" if at < _EDGE else "optional" if index % 2 and len(x.ticks) > 5 else None
        ticks.append(element("span", axes.label(tick), class_=kind, style=f"left:{labels.percent(at)}"))
    if not bars.are_drawn(chart):
        ticks.append(element("span", last, class_="end", style="left:100%"))
    return element("div", ticks, class_="x-axis", aria_hidden="true")


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _up(fraction: float | None) -> str:
    return labels.short(_HEIGHT * (1 - (fraction or 0.0)))


def _plain(value: float) -> str:
    return f"{value:.6g}"
