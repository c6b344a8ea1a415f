"""Charts as plotly figures: plain dictionaries in plotly's JSON schema, without the plotly package.

Colours, fonts and sizes are left to the page, which knows the reader's theme.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracelyze.reports import escaping
from tracelyze.reports.drawing import bars, svg

if TYPE_CHECKING:
    from tracelyze.diagnosis import Chart, Line

_DASHES = ("solid", "dash", "dot", "dashdot")  # as in the still charts


def figure(chart: Chart) -> dict[str, Any]:
    """The figure of a chart: one trace a line, a shape and a label for each mark and for the limit, as in the drawing.

    The `name` of a shape or label is its role; the page gives it a color by that.
    """
    log = svg.is_log(chart)
    shapes, labels = _marks(chart)
    if chart.threshold is not None and math.isfinite(chart.threshold) and (chart.threshold > 0 or not log):
        shapes += _limit(chart, log)
        labels.append(_limit_label(chart, log))
    return {
        "data": [_trace(line, chart.x, _DASHES[index % len(_DASHES)]) for index, line in enumerate(chart.lines)],
        "layout": {
            "xaxis": {"title": {"text": _text(chart.x_label)}, "showgrid": True},
            "yaxis": {
                "title": {"text": _text(chart.y_label)},
                "type": "log" if log else "linear",
                **({"tickformat": ".0%"} if chart.unit == "share" else {}),
            },
            "shapes": shapes,
            "annotations": labels,
            "showlegend": len(chart.lines) > 1,
            "hovermode": "x unified",
            **({"barmode": "stack", "bargap": 0.1} if bars.are_drawn(chart) else {}),
        },
    }


def _marks(chart: Chart) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A vertical line and a label for each mark, the onset first."""
    shapes, labels = [], []
    middle = _middle(chart)
    for index, mark in enumerate(mark for mark in chart.marks if math.isfinite(mark.x)):
        role = "mark" if index else "onset"
        line = {"width": 1 if index else 1.5, "dash": "dash" if index else "solid"}
        place = {"type": "line", "xref": "x", "yref": "paper", "x0": mark.x, "x1": mark.x, "y0": 0, "y1": 1}
        shapes.append({**place, "line": line, "name": role})
        labels.append(
            {
                "x": mark.x,
                "y": 1,
                "xref": "x",
                "yref": "paper",
                "text": _text(mark.label),
                "showarrow": False,
                "xanchor": "left" if mark.x <= middle else "right",
                "yanchor": "bottom",
                "name": role,
            }
        )
    return shapes, labels


def _limit(chart: Chart, log: bool) -> list[dict[str, Any]]:
    """The horizontal line, and the healthy side of it shaded as far as values reach."""
    at = chart.threshold or 0.0
    across = {"xref": "paper", "yref": "y", "x0": 0, "x1": 1}
    line = {"type": "line", **across, "y0": at, "y1": at, "line": {"width": 1, "dash": "dash"}, "name": "limit"}
    if not chart.healthy:
        return [line]
    y = svg.scales(chart)[1]
    edge = max(y.high, at) if chart.healthy == "above" else min(y.low, at)
    if log and edge <= 0:
        return [line]
    return [{"type": "rect", **across, "y0": at, "y1": edge, "layer": "below", "name": "healthy"}, line]


def _limit_label(chart: Chart, log: bool) -> dict[str, Any]:
    at = chart.threshold or 0.0
    return {
        "x": 1,
        # Annotations stand at the exponent on a logarithmic axis, shapes at the value.
        "y": math.log10(at) if log else at,
        "xref": "paper",
        "yref": "y",
        "text": _text(chart.threshold_label or "limit"),
        "showarrow": False,
        "xanchor": "right",
        "yanchor": "bottom",
        "name": "limit",
    }


def _trace(line: Line, x: list[float], dash: str) -> dict[str, Any]:
    if line.style == "bars":
        # The page puts in the colour that the kind has in its theme.
        return {"type": "bar", "name": _text(line.name), "x": x, "y": line.y, "meta": bars.kind_class(line.kind)}
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": _text(line.name),
        "x": [value if math.isfinite(value) else None for value in x],
        "y": [value if value is not None and math.isfinite(value) else None for value in line.y],
        "mode": "markers" if line.style == "points" else "lines",
        "connectgaps": False,
    }
    if line.style != "points":
        trace["line"] = {"dash": dash, "width": 1.75, "shape": "hv" if line.style == "steps" else "linear"}
    return trace


def _middle(chart: Chart) -> float:
    """Labels of marks run inwards from here, so that they do not stretch the axis."""
    known = [value for value in chart.x if math.isfinite(value)]
    return (min(known) / 2 + max(known) / 2) if known else 0.0


def _text(text: str) -> str:
    """plotly reads a small HTML in its labels; a run's names are not HTML."""
    return escaping.one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
