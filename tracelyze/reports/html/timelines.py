"""Timelines on the page: the still picture, what it shows in numbers, and the data that lets a script zoom."""

from __future__ import annotations

import base64
import gzip
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.diagnosis import KINDS
from tracelyze.reports import escaping
from tracelyze.reports.drawing import lanes
from tracelyze.reports.html.charts import in_numbers, kind_swatch
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.diagnosis import Lane, Timeline

_NAME = 80  # characters of a name in the table


def section(timelines: list[Timeline]) -> Child:
    """All timelines of a picture; None where there is none."""
    if not timelines:
        return None
    shown = [figure(timeline, number) for number, timeline in enumerate(timelines)]
    title = "In detail"
    return element("section", element("h2", title), shown, id="steps")


def figure(timeline: Timeline, number: int) -> Markup:
    """One timeline; `number` is its place in the data for the script."""
    return element(
        "figure",
        element("figcaption", timeline.title),
        element("p", _explained(timeline), class_="quiet"),
        element(
            "ul", [element("li", kind_swatch(kind), KINDS[kind]) for kind in lanes.kinds(timeline)], class_="legend"
        ),
        element("div", lanes.draw(timeline, f"timeline-{number}"), class_="lanes"),
        _cut(timeline),
        _numbers(timeline),
        class_="card timeline-of-step",
        data_timeline=number,
    )


def packed(timelines: list[Timeline]) -> str:
    """The data of all timelines: JSON, gzip, base64."""
    text = escaping.json_text([lanes.data(timeline) for timeline in timelines])
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _cut(timeline: Timeline) -> Child:
    """How to get every event of what is shown: the page holds what a screen can show of them."""
    command = lanes.cut_command(timeline)
    said = "Every event of this stretch, for ui.perfetto.dev:"
    return element("p", said, " ", element("code", command), class_="quiet cut") if command else None


def _explained(timeline: Timeline) -> str:
    drawn = [
        count
        for lane in timeline.lanes
        for count, level in zip(lane.merged, lane.level, strict=True)
        if count > 1 and (not lane.shown or level < lane.shown)
    ]
    merged, together = sum(drawn), len(drawn)
    if not together:
        return timeline.note
    unit = float(f"{timeline.unit_us:.2g}")
    short = formatting.duration(unit / 1e6)
    said = (
        f"{formatting.plural(merged, 'activity')} of about {short} or less are drawn together with their "
        f"neighbours, as {formatting.plural(together, 'slice')}."
    )
    return f"{timeline.note} {said}".strip()


def _numbers(timeline: Timeline) -> Markup:
    heads = ["Lane", "Filled", "Of the time", "Activities", "Most time in"]
    return in_numbers(heads, [_row(timeline, lane, heads) for lane in timeline.lanes])


def _row(timeline: Timeline, lane: Lane, heads: list[str]) -> Markup:
    names = "; ".join(
        f"{escaping.shortened(escaping.one_line(name), _NAME)} ({formatting.duration(time / 1e6)})"
        for name, time in lanes.longest(timeline, lane)
    )
    said = [
        formatting.duration(lane.busy_us / 1e6),
        formatting.percent(lane.busy_us / timeline.length_us if timeline.length_us > 0 else 0.0),
        f"{lane.slices:,}",
    ]
    return element(
        "tr",
        element("th", escaping.one_line(lane.name), scope="row"),
        [element("td", one, class_="number", data_label=head) for one, head in zip(said, heads[1:], strict=False)],
        element("td", names, data_label=heads[-1]),
    )
