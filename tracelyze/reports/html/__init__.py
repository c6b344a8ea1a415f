"""The diagnosis as one HTML file: offline, readable without script, small enough for any ticket."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tracelyze.diagnosis import Chart, Diagnosis, Line
from tracelyze.reports.html import page

LIMIT: Final = 9_500_000
"""Bytes. The smallest limits on attachments that are common in trackers are 10 MB."""


@dataclass(frozen=True)
class Plan:
    """How much goes into the page: points of a line, the interactive charts, the diagnosis as data, the timelines."""

    points: int | None = None
    interactive: bool = True
    data: bool = True
    timelines: bool = True


PLANS: Final = (
    Plan(),
    Plan(points=400),
    Plan(points=100),
    Plan(points=100, interactive=False),
    Plan(points=100, interactive=False, data=False),
    Plan(points=100, interactive=False, data=False, timelines=False),
)


def render(diagnosis: Diagnosis, limit: int = LIMIT) -> str:
    """The page. One that would be larger than `limit` bytes is thinned until it fits, and says so."""
    text = ""
    for plan in PLANS:
        shown = diagnosis if plan.points is None else thinned(diagnosis, plan.points)
        if shown.picture is not None and not plan.timelines:
            shown = replace(shown, picture=replace(shown.picture, timelines=[]))
        text = page.render(shown, interactive=plan.interactive, data=plan.data, thinned=plan != PLANS[0])
        if len(text.encode()) <= limit:
            break
    return text


def thinned(diagnosis: Diagnosis, points: int) -> Diagnosis:
    """The diagnosis with at most about `points` points a line, extremes and ends kept."""
    return replace(
        diagnosis,
        findings=[replace(one, charts=[_thin(chart, points) for chart in one.charts]) for one in diagnosis.findings],
        charts=[_thin(chart, points) for chart in diagnosis.charts],
    )


def _thin(chart: Chart, points: int) -> Chart:
    if len(chart.x) <= points:
        return chart
    buckets = max(1, points // (2 * max(1, len(chart.lines)) + 1))
    size = -(-len(chart.x) // buckets)
    kept = {0, len(chart.x) - 1}
    for start in range(0, len(chart.x), size):
        kept.add(start)
        for line in chart.lines:
            known = [
                (value, index) for index, value in enumerate(line.y[start : start + size], start) if value is not None
            ]
            if known:
                kept |= {min(known)[1], max(known)[1]}
    order = sorted(kept)
    lines = [
        Line(line.name, [line.y[index] for index in order if index < len(line.y)], line.style, line.kind)
        for line in chart.lines
    ]
    return replace(chart, x=[chart.x[index] for index in order], lines=lines)
