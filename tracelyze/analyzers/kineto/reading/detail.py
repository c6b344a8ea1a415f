"""A second look at a few steps of a trace: every operator, runtime call and Python function of the host, nested.

The first look keeps what the attribution needs, which is outermost ranges. For a picture the inner ones are wanted
too, with their Python stacks, but only those of the steps that are shown.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tracelyze.analyzers.kineto.reading import events
from tracelyze.analyzers.kineto.reading.blocks import HOST_KINDS, Blocks
from tracelyze.analyzers.kineto.reading.host_spans import (
    LONGEST_NAME,
    LONGEST_STACK,
    HostSpan,
    decoded,
    read_part,
    shapes,
)
from tracelyze.analyzers.kineto.reading.source import TraceBytes
from tracelyze.analyzers.kineto.reading.stored_ranges import read_ranges
from tracelyze.analyzers.kineto.timeline.categories import Activity, Kind, activity_of, kind_of
from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Integers, Numbering, Threads

MOST_EVENTS: Final = 600_000
"""Host events that are kept: about 30 MB."""

_MOST_NAMES: Final = 50_000
_ANY_SPAN: Final = (HostSpan, events.Span)
_NO_THREAD: Final = (0, "0")


@dataclass
class Detail:
    """Host events of some windows of time, in order of thread and start; arrays of shape [events].

    `kind` (:class:`categories.Kind`), `activity`, `name` into `names`, `thread` into `threads`, `stack` into `stacks`
    (-1: none), `shape` into `shapes` (-1: none), `sequence`: number of the autograd node that a forward operator makes
    and its backward runs (-1: none), `backward`: whether the event belongs to a backward. `complete`: False if there
    were more than MOST_EVENTS.
    """

    start: Floats
    end: Floats
    kind: Integers
    activity: Integers
    name: Integers
    thread: Integers
    stack: Integers
    shape: Integers
    sequence: Integers
    backward: Array
    names: list[str]
    stacks: list[str]
    shapes: list[str]
    threads: list[tuple[Any, Any]]
    complete: bool


def look_again(
    path: Path, blocks: Blocks, windows: list[tuple[float, float]], threads: list[tuple[Any, Any]]
) -> Detail:
    """The host events that touch one of `windows`. `threads`: those of the trace, whose numbers stay as they are.

    `path` is a trace file, with the `blocks` that were found in it, or the folder of an imported trace.
    """
    found = _Found(windows, threads)
    collecting = gc.isenabled()
    gc.disable()  # as in the first look
    try:
        for spans in read_ranges(path, windows) if path.is_dir() else _read(path, blocks, windows):
            if not found.add(spans):
                break
        return found.finish()
    finally:
        if collecting:
            gc.enable()


def _read(path: Path, blocks: Blocks, windows: list[tuple[float, float]]) -> Iterable[list[Any]]:
    with TraceBytes(path) as source:
        for offset, length in blocks.within(windows):
            source.skip_to(offset)
            yield decoded(read_part(source, length))


class _Kinds(dict[str, "Kind | None"]):
    """The kind of host event that a category stands for; None for everything else."""

    def __missing__(self, category: str) -> Kind | None:
        kind = kind_of(category)
        found = kind if kind in HOST_KINDS else None
        if len(self) < _MOST_NAMES:
            self[category] = found
        return found


@dataclass
class _Found:
    """Rows while they are gathered."""

    windows: list[tuple[float, float]]
    known_threads: list[tuple[Any, Any]]
    parts: list[Array] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.names = Numbering(_MOST_NAMES, (Kind.ANNOTATION, "(other names)"))
        self.stacks = Numbering(_MOST_NAMES, "")
        self.shapes = Numbering(_MOST_NAMES, "")
        self.threads = Threads(_MOST_NAMES, ("", ""))
        for key in self.known_threads:
            self.threads[key]
        self.kinds = _Kinds()

    def add(self, spans: Iterable[Any]) -> bool:
        """Takes the events of one block; False when there is no room for more."""
        rows = []
        for span in spans:
            if not isinstance(span, _ANY_SPAN):
                continue
            kind = self.kinds[span.cat]
            start = span.ts
            end = start + span.dur if span.dur > 0 else start
            if kind is None or not self._wanted(start, end):
                continue
            stack, shape, sequence, backward = -1, -1, -1, False
            if isinstance(span, HostSpan) and (args := span.args) is not None:
                stack = self.stacks[args.stack[:LONGEST_STACK]] if args.stack else -1
                said = shapes(args.dims)
                shape = self.shapes[said] if said else -1
                sequence = args.sequence if isinstance(args.sequence, int) else -1
                backward = args.forward not in _NO_THREAD
            name, thread = self.names[kind, span.name[:LONGEST_NAME]], self.threads[span.pid, span.tid]
            rows.append((start, end, kind, name, thread, stack, shape, sequence, backward))
        self.count += len(rows)
        self.parts.append(np.array(rows, dtype=_ROW))
        return self.count < MOST_EVENTS

    def _wanted(self, start: float, end: float) -> bool:
        return any(start < high and end >= low for low, high in self.windows)

    def finish(self) -> Detail:
        table = np.concatenate(self.parts) if self.parts else np.zeros(0, dtype=_ROW)
        table = table[np.lexsort((-table["end"], table["start"], table["thread"]))]
        names = self.names.keys_met
        activity = np.array([activity_of(kind, name) for kind, name in names] or [Activity.DROPPED], dtype=np.int8)
        return Detail(
            **{name: np.ascontiguousarray(table[name]) for name in table.dtype.names or ()},
            activity=activity[table["name"]],
            names=[name for _, name in names],
            stacks=self.stacks.keys_met,
            shapes=self.shapes.keys_met,
            threads=self.threads.keys_met,
            complete=self.count < MOST_EVENTS,
        )


_ROW: Final = np.dtype(
    [
        ("start", "f8"),
        ("end", "f8"),
        ("kind", "i1"),
        ("name", "i4"),
        ("thread", "i4"),
        ("stack", "i4"),
        ("shape", "i4"),
        ("sequence", "i8"),
        ("backward", "?"),
    ]
)


def parents(start: Floats, end: Floats) -> Integers:
    """The innermost range that holds each, -1 for none, shape [ranges]. Sorted by start and then by falling end."""
    found = np.full(len(start), -1, dtype=np.int64)
    open_: list[int] = []
    begins, ends = start.tolist(), end.tolist()
    for index, begin in enumerate(begins):
        while open_ and ends[open_[-1]] <= begin:
            open_.pop()
        if open_:
            found[index] = open_[-1]
        open_.append(index)
    return found


def innermost(start: Floats, end: Floats, parent: Integers, times: Floats) -> Integers:
    """The innermost of nested ranges that holds each time, -1 for none, shape [times]."""
    place = np.searchsorted(start, times, side="right") - 1
    while len(start):
        missed = np.flatnonzero((place >= 0) & (end[np.maximum(place, 0)] < times))
        if not len(missed):
            break
        place[missed] = parent[place[missed]]
    return place.astype(np.int64)
