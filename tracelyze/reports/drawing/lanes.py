"""The still picture of a timeline: one SVG as wide as its box, complete without script, and the data of the live one.

Slices are horizontal strokes along the middle of their row, which takes seven bytes each. Their names stand in drawings
of their own that cut off what is too long, so that they fit at any width.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze import formatting
from tracelyze.diagnosis import KINDS
from tracelyze.reports import escaping
from tracelyze.reports.drawing import axes, bars
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracelyze.diagnosis import Lane, Timeline

ROW: Final = 15
HEAD: Final = 20
GAP: Final = 8
FOOT: Final = 40
"""Pixels: a level of a lane, its name above it, the room below it, the ticks and their name at the bottom."""

SCALES: Final = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))
"""Microseconds and name of the units of the scale; the largest of which the stretch holds two."""

ACROSS: Final = 2000
"""Units of the plot's width in the still picture."""

_NAMED_FROM: Final = 0.025
_MOST_NAMES: Final = 120
_LONGEST: Final = 80
_LONGEST_DETAIL: Final = 120
"""Share of the width from which on a slice says its name, how many do, and how many characters are kept of a name and
of what an event says of itself."""


@dataclass(frozen=True)
class Placed:
    """A lane with where it stands: the top of its first row, in pixels, its rows that are drawn, and all of them."""

    lane: Lane
    top: int
    rows: int
    levels: int

    @property
    def name(self) -> str:
        """The lane's name, and how much of it is drawn."""
        hidden = "" if self.rows == self.levels else f", the outer {self.rows} of {self.levels} levels"
        return escaping.one_line(self.lane.name) + hidden


def place(timeline: Timeline) -> tuple[list[Placed], int]:
    """The lanes below each other, and the bottom of the last one."""
    placed, at = [], 0
    for lane in timeline.lanes:
        levels = max(lane.level, default=0) + 1
        rows = min(lane.shown or levels, levels)
        placed.append(Placed(lane, at + HEAD, rows, levels))
        at += HEAD + rows * ROW + GAP
    return placed, at


def draw(timeline: Timeline, ident: str) -> Markup:
    """The picture as one `<svg>`. `ident` makes the ids of its title and description unique."""
    placed, bottom = place(timeline)
    slices = element(
        "svg",
        [_strokes(one, timeline.length_us) for one in placed],
        x="0",
        y="0",
        width="100%",
        height=bottom,
        viewBox=f"0 0 {ACROSS} {bottom}",
        preserveAspectRatio="none",
        class_="slices",
    )
    return element(
        "svg",
        element("title", escaping.one_line(timeline.title), id=f"{ident}-title"),
        element("desc", describe(timeline), id=f"{ident}-description"),
        [_ground(one) for one in placed],
        slices,
        element("g", _names(timeline, placed), class_="slice-names"),
        [element("text", _cut(one.name, 80), x="0", y=one.top - 6, class_="lane-name") for one in placed],
        element("g", _scale(timeline, bottom), class_="scale"),
        role="img",
        aria_labelledby=f"{ident}-title {ident}-description",
        width="100%",
        height=bottom + FOOT,
        class_="drawing",
    )


def data(timeline: Timeline) -> dict[str, Any]:
    """What the live picture draws from: the slices in full, with the same places.

    Times are in tenths of microseconds, begins as differences to the slice before and launches to the begin: that packs
    to two thirds. `busy` is 0 where it is the length.
    """
    placed, bottom = place(timeline)
    return {
        "title": escaping.one_line(timeline.title),
        "length": timeline.length_us,
        "source": shlex.quote(escaping.one_line(timeline.source)),
        "begin": timeline.begin_us,
        "bottom": bottom,
        "row": ROW,
        "head": HEAD,
        "gap": GAP,
        "foot": FOOT,
        "details": [_cut(detail, _LONGEST_DETAIL) for detail in timeline.details],
        "names": [_cut(name, _LONGEST) for name in timeline.names],
        "kinds": [[bars.kind_class(kind), said] for kind, said in KINDS.items()],
        "lanes": [
            {
                "name": escaping.one_line(one.lane.name),
                "top": one.top,
                "rows": one.rows,
                "levels": one.levels,
                "start": _steps(tenths(one.lane.start)),
                "length": tenths(one.lane.length),
                "level": one.lane.level,
                "label": one.lane.label,
                "kind": one.lane.kind,
                "merged": one.lane.merged,
                "busy": [
                    tenth if count > 1 else 0
                    for tenth, count in zip(tenths(one.lane.busy), one.lane.merged, strict=True)
                ],
                "launched": [
                    None if launched is None else round((start - launched) * 10)
                    for start, launched in zip(one.lane.start, one.lane.launched, strict=False)
                ],
                "detail": one.lane.detail,
            }
            for one in placed
        ],
    }


def cut_command(timeline: Timeline) -> str:
    """The command that writes every event of the whole timeline as a trace; empty where no single trace holds it."""
    if not timeline.source:
        return ""
    begin, end = timeline.begin_us, timeline.begin_us + timeline.length_us
    return f"tracelyze cut {shlex.quote(escaping.one_line(timeline.source))} --from {begin:.1f} --to {end:.1f}"


def tenths(times: list[float]) -> list[int]:
    """Microseconds as whole tenths."""
    return [round(time * 10) for time in times]


def _steps(values: list[int]) -> list[int]:
    return [value - before for before, value in zip([0, *values], values, strict=False)]


def describe(timeline: Timeline) -> str:
    """The picture in words."""
    said = [f"{formatting.duration(timeline.length_us / 1e6)} from left to right."]
    for lane in timeline.lanes:
        share = formatting.percent(lane.busy_us / timeline.length_us if timeline.length_us > 0 else 0.0)
        said.append(f"{escaping.one_line(lane.name)}: {share} filled, {formatting.plural(lane.slices, 'activity')}.")
    return " ".join(said)


def kinds(timeline: Timeline) -> list[str]:
    """The kinds that occur, in the order of KINDS."""
    met = {kind for lane in timeline.lanes for kind in lane.kind}
    return [name for index, name in enumerate(KINDS) if index in met]


def longest(timeline: Timeline, lane: Lane, most: int = 3) -> list[tuple[str, float]]:
    """The names with most time among the outermost slices of a lane, and their microseconds."""
    time: dict[int, float] = {}
    for level, label, busy in zip(lane.level, lane.label, lane.busy, strict=True):
        if level == 0:
            time[label] = time.get(label, 0.0) + busy
    ranked = sorted(time, key=lambda label: -time[label])[:most]
    return [(timeline.names[label], time[label]) for label in ranked]


def _strokes(one: Placed, length: float) -> list[Markup]:
    paths: dict[tuple[int, int, int], list[str]] = {}
    reached: dict[tuple[int, int, int], int] = {}
    for number, (level, kind, begin, end) in enumerate(_merged(one, length)):
        key = (level, kind, number % 2)
        if key not in paths:
            paths[key] = [f"M{begin} {one.top + level * ROW + ROW / 2:g}h{end - begin}"]
        else:
            paths[key].append(f"m{begin - reached[key]} 0h{end - begin}")
        reached[key] = end
    names = list(KINDS)
    return [
        element("path", d="".join(data), class_=f"{bars.kind_class(names[kind] if kind < len(names) else '')} t{shade}")
        for (_, kind, shade), data in sorted(paths.items())
    ]


def _merged(one: Placed, length: float) -> Iterator[tuple[int, int, int, int]]:
    """Level, kind, begin and end of what is drawn, in units; neighbours of one kind that are thin are drawn as one."""
    lane = one.lane
    scale = ACROSS / length if length > 0 else 0.0
    open_: tuple[int, int, int, int] | None = None
    for start, extent, level, kind in zip(lane.start, lane.length, lane.level, lane.kind, strict=True):
        if level >= one.rows:
            continue
        begin = int(start * scale)
        end = max(begin + 1, math.ceil((start + extent) * scale - 0.5))
        if open_ is not None and open_[0] == level:
            thin = min(end - begin, open_[3] - open_[2]) <= 2
            if kind == open_[1] and begin <= open_[3] and thin:
                open_ = (level, kind, open_[2], max(end, open_[3]))
                continue
            begin = max(begin, open_[3])
            if begin >= end:
                continue
        if open_ is not None:
            yield open_
        open_ = (level, kind, begin, end)
    if open_ is not None:
        yield open_


def _names(timeline: Timeline, placed: list[Placed]) -> list[Markup]:
    """Names inside of the slices that are wide enough."""
    if timeline.length_us <= 0:
        return []
    wide = [
        (length, start, one.top + level * ROW, label)
        for one in placed
        for start, length, level, label, merged in zip(
            one.lane.start, one.lane.length, one.lane.level, one.lane.label, one.lane.merged, strict=True
        )
        if length >= _NAMED_FROM * timeline.length_us and merged == 1 and level < one.rows
    ]
    wide.sort(key=lambda one: (-one[0], one[1], one[2]))
    return [
        element(
            "svg",
            element("text", _cut(timeline.names[label], _LONGEST), x=3, y=ROW - 4),
            x=_percent(start / timeline.length_us),
            y=top,
            width=_percent(length / timeline.length_us),
            height=ROW,
        )
        for length, start, top, label in wide[:_MOST_NAMES]
    ]


def _ground(one: Placed) -> Markup:
    return element("rect", x="0", y=one.top, width="100%", height=one.rows * ROW, class_="lane-ground")


def _scale(timeline: Timeline, bottom: int) -> Child:
    unit, name = next(one for one in SCALES if timeline.length_us >= 2 * one[0] or one[0] == 1.0)
    axis = axes.linear([0.0, timeline.length_us / unit], ticks=5)
    marks: list[Child] = [element("line", x1="0", x2="100%", y1=bottom, y2=bottom, class_="axis")]
    for tick in axis.ticks:
        at = axis.fraction(tick) or 0.0
        side = "begin" if at < 0.02 else "end" if at > 0.98 else "middle"
        marks.append(element("line", x1=_percent(at), x2=_percent(at), y1=bottom, y2=bottom + 4, class_="axis"))
        marks.append(element("text", axes.label(tick), x=_percent(at), y=bottom + 17, class_=f"tick {side}"))
    marks.append(element("text", f"{name} from the beginning", x="100%", y=bottom + 33, class_="name end"))
    return marks


def _cut(text: str, longest: int) -> str:
    line = escaping.one_line(text)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _percent(fraction: float) -> str:
    return f"{fraction * 100:.3f}".rstrip("0").rstrip(".") + "%"
