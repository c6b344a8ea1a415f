"""Charts as plotly figures: plain dictionaries in plotly's JSON schema, without the plotly package.

Colours, fonts and sizes are left to the page, which knows the reader's theme.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracelyze.reports import bars, escaping

if TYPE_CHECKING:
    from tracelyze.diagnosis import Chart, Line

_DASHES = ("solid", "dash", "dot", "dashdot")  # as in the still charts


def figure(chart: Chart) -> dict[str, Any]:
    """The figure of a chart: one trace a line, a shape and a label for each mark and for the threshold."""
    shapes: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    middle = _middle(chart)
    for index, mark in enumerate(mark for mark in chart.marks if math.isfinite(mark.x)):
        shapes.append(
            {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "x0": mark.x,
                "x1": mark.x,
                "y0": 0,
                "y1": 1,
                "line": {"width": 1.5 if index == 0 else 1, "dash": "solid" if index == 0 else "dot"},
            }
        )
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
            }
        )
    if chart.threshold is not None and math.isfinite(chart.threshold) and (chart.threshold > 0 or not chart.log_y):
        height = math.log10(chart.threshold) if chart.log_y else chart.threshold
        shapes.append(
            {
                "type": "line",
                "xref": "paper",
                "yref": "y",
                "x0": 0,
                "x1": 1,
                "y0": chart.threshold,
                "y1": chart.threshold,
                "line": {"width": 1, "dash": "dash"},
            }
        )
        labels.append(
            {
                "x": 1,
                "y": height,
                "xref": "paper",
                "yref": "y",
                "text": _text(chart.threshold_label or "threshold"),
                "showarrow": False,
                "xanchor": "right",
                "yanchor": "bottom",
            }
        )
    return {
        "data": [_trace(line, chart.x, _DASHES[index % len(_DASHES)]) for index, line in enumerate(chart.lines)],
        "layout": {
            "xaxis": {"title": {"text": _text(chart.x_label)}},
            "yaxis": {"title": {"text": _text(chart.y_label)}, "type": "log" if chart.log_y else "linear"},
            "shapes": shapes,
            "annotations": labels,
            "showlegend": len(chart.lines) > 1,
            "hovermode": "x unified",
            **({"barmode": "stack", "bargap": 0.1} if bars.are_drawn(chart) else {}),
        },
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
