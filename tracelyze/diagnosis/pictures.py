"""What only a page can show: timelines of single steps, and tables of what took time. No JSON holds them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Lane:
    """What one stream or host thread did over a stretch of time: columns, one entry per slice that is drawn.

    `start` (from the beginning of the stretch) and `length`: microseconds; `level`: depth of nesting, 0 outermost;
    `label` points into the timeline's names, `kind` into KINDS. `merged`: how many activities a slice stands for,
    `busy`: microseconds that they cover. `slices` and `busy_us`: both of the whole lane. `launched`: when the host
    launched each, None if not known; empty for the host. `detail` points into the timeline's details, -1 for none;
    empty without any. `shown`: levels drawn before a reader opens the lane; 0: all."""

    name: str
    start: list[float]
    length: list[float]
    level: list[int]
    label: list[int]
    kind: list[int]
    merged: list[int]
    busy: list[float]
    slices: int
    busy_us: float
    launched: list[float | None] = field(default_factory=list)
    shown: int = 0
    detail: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Timeline:
    """What streams and threads did next to each other during one step, thinned to what a screen can show.

    `unit_us`: shorter ones are drawn together. `note`: what was chosen. `details`: what events say of themselves.
    `source`: the trace, if it is one, and `begin_us` when the picture begins on its clock: where to cut it."""

    title: str
    note: str
    length_us: float
    unit_us: float
    names: list[str]
    lanes: list[Lane]
    details: list[str] = field(default_factory=list)
    source: str = ""
    begin_us: float = 0.0


@dataclass(frozen=True)
class Listing:
    """A table. `columns`: heading and unit of each; the unit is as in Evidence, or `text` where the values are words.

    `rows`: a value for each column, the first of them a short name whose long form `full` holds, or an empty string.
    `rest`: what the rows leave out."""

    title: str
    about: str
    columns: list[tuple[str, str]]
    rows: list[list[float | int | str | None]]
    full: list[str]
    rest: str = ""


@dataclass(frozen=True)
class Picture:
    """What only a page can show, made when one is asked for: timelines of single steps, tables of what took time."""

    timelines: list[Timeline] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
