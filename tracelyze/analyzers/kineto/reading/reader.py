"""Reads a Kineto trace into columns: one pass, one block in memory at a time, keeping what the attribution uses."""

from __future__ import annotations

import gc
from itertools import compress
from pathlib import Path
from typing import Any, Final

import numpy as np

from tracelyze.analyzers.kineto.reading.blocks import Blocks
from tracelyze.analyzers.kineto.reading.events import Arguments, Instant, Span
from tracelyze.analyzers.kineto.reading.records import TraceRecords
from tracelyze.analyzers.kineto.reading.source import TraceBytes
from tracelyze.analyzers.kineto.reading.stored import open_trace
from tracelyze.analyzers.kineto.timeline.categories import (
    COVERAGE,
    Activity,
    Kind,
    activity_of,
    kind_of,
    may_launch,
    replays_graph,
)
from tracelyze.analyzers.kineto.timeline.intervals import outermost
from tracelyze.analyzers.kineto.timeline.memory import changes_worth_keeping
from tracelyze.analyzers.kineto.timeline.table import Array, Numbering, Table, Threads, distinct
from tracelyze.analyzers.kineto.timeline.trace import (
    COVERAGE_COLUMNS,
    DEVICE_COLUMNS,
    HOST_COLUMNS,
    LAUNCH_COLUMNS,
    MEMORY_COLUMNS,
    Collective,
    Trace,
)
from tracelyze.errors import Cause, InputError

MOST_ROWS: Final = 8_000_000
"""Most rows of one table (device work, launches, each host class): about 300 MB. A 2 GB trace has a million."""

MOST_NAMES: Final = 100_000
MOST_QUEUES: Final = 30_000
LONGEST_NAME: Final = 400
LATEST: Final = 1e16
"""Distinct names, and distinct streams and process groups, that are kept apart, the length at which a name is cut,
and the largest credible time stamp (300 years in microseconds)."""

LONGEST_REMEMBERED: Final = 4000
BATCH: Final = 4096
"""Length up to which a name's number is remembered, and events of a kind that are put into tables at once."""

MEMORY_CHANGE: Final = "[memory]"
ACCELERATOR: Final = 1
"""Name of the events that say how much memory there is, and the type of the devices that are not the host."""

_NO_ARGUMENTS: Final = Arguments()
_OTHER: Final = (Kind.ANNOTATION, "(other names)")
_DEVICE_KINDS: Final = (Kind.KERNEL, Kind.COPY, Kind.SET)
_HOST_KINDS: Final = (Kind.RUNTIME, Kind.OPERATOR, Kind.ANNOTATION, Kind.FRAME)


class _Waiting(dict[str, list[Span]]):
    """By category, the list in which events of its kind wait to be put into tables."""

    def __init__(self) -> None:
        super().__init__()
        self.by_kind: dict[Kind, list[Span]] = {kind: [] for kind in Kind}

    def __missing__(self, category: str) -> list[Span]:
        spans = self.by_kind[kind_of(category)]
        if len(self) < MOST_NAMES:
            self[category] = spans
        return spans


class _Names(dict[str, int]):
    """Numbers for the names of one kind, out of a numbering that several kinds share; long names are cut."""

    def __init__(self, shared: Numbering, kind: Kind) -> None:
        super().__init__()
        self._shared = shared
        self._kind = kind

    def __missing__(self, name: str) -> int:
        number = self._shared[self._kind, name[:LONGEST_NAME]]
        if len(self) < MOST_NAMES and len(name) < LONGEST_REMEMBERED:
            self[name] = number
        return number


class _ThreadsOf(dict[int | str, int]):
    """Numbers for the threads of one process, out of the numbering of all threads."""

    def __init__(self, shared: Threads, process: int | str) -> None:
        super().__init__()
        self.process = process
        self._shared = shared

    def __missing__(self, thread: int | str) -> int:
        number = self._shared[self.process, thread]
        if len(self) < MOST_NAMES:
            self[thread] = number
        return number


def read_trace(path: Path | str, blocks: Blocks | None = None) -> Trace:
    """The trace in file `path`, or in the folder of an imported one. InputError, in one line, where there is none.

    `blocks` is filled with what lies where in the file, for a second look at a part of it.
    """
    path = Path(path)
    if path.is_dir():
        return open_trace(path)
    collecting = gc.isenabled()
    gc.disable()  # the decoded records hold no cycles, and looking for some would cost a third of the time
    try:
        with TraceBytes(path) as source:
            records = TraceRecords(source)
            reading = _Reading()
            for events in records:
                reading.add(events)
                if blocks is not None:
                    blocks.add(*records.place, events)
            return reading.finish(path, records)
    finally:
        if collecting:
            gc.enable()


class _Reading:
    """The tables of a trace while they grow."""

    def __init__(self) -> None:
        self.waiting = _Waiting()
        self.device = Table(MOST_ROWS, DEVICE_COLUMNS)
        self.launches = Table(MOST_ROWS, LAUNCH_COLUMNS)
        self.memory = Table(MOST_ROWS, MEMORY_COLUMNS, changes_worth_keeping)
        self.changes: list[Any] = []
        self.host: dict[Activity, Table] = {
            activity: Table(
                MOST_ROWS,
                COVERAGE_COLUMNS if activity is Activity.RUNTIME else HOST_COLUMNS,
                outermost if activity in COVERAGE else None,
            )
            for activity in Activity
            if activity is not Activity.DROPPED
        }
        self.device_numbers = Numbering(MOST_NAMES, _OTHER)
        self.host_numbers = Numbering(MOST_NAMES, _OTHER)
        self.device_names = _Names(self.device_numbers, Kind.KERNEL)
        self.host_names = {kind: _Names(self.host_numbers, kind) for kind in _HOST_KINDS}
        self.activities = np.zeros(0, dtype=np.int8)
        self.launching = np.zeros(0, dtype=bool)
        self.replaying = np.zeros(0, dtype=np.int8)
        self.queues = Numbering(MOST_QUEUES, ("", "", ""))
        self.threads = Threads(MOST_NAMES, ("", ""))
        self.own_threads = _ThreadsOf(self.threads, "")
        self.collectives = Numbering(MOST_QUEUES, Collective("", ""))
        self.collectives[("", "")] = 0
        self.collectives.keys_met.append(("", ""))
        self.events = 0
        self.misplaced = 0
        self.negative = 0
        self.stacks = False

    def add(self, events: list[Any]) -> None:
        """Sorts one block of events by kind; a kind is put into its tables when enough of it has come together."""
        self.events += len(events)
        waiting = self.waiting
        for event in events:
            if type(event) is Span:
                waiting[event.cat].append(event)
            elif type(event) is Instant and event.name == MEMORY_CHANGE and event.args is not None:
                self.changes.append(event)
        if len(self.changes) >= BATCH:
            self._add_memory()
        for kind, spans in waiting.by_kind.items():
            if len(spans) >= BATCH or kind is Kind.IGNORED:
                self._put(kind, spans)

    def _put(self, kind: Kind, spans: list[Span]) -> None:
        if kind is Kind.UNKNOWN:
            self._add_device(Kind.KERNEL, [span for span in spans if _on_device(span)])
            calls = [span for span in spans if span.args and span.args.correlation >= 0 and not _on_device(span)]
            if calls:
                self._add_host(Kind.RUNTIME, calls)
        elif kind in _DEVICE_KINDS:
            self._add_device(kind, spans)
        elif kind is not Kind.IGNORED:
            self._add_host(kind, spans)
        spans.clear()

    def _add_memory(self) -> None:
        """Changes of the memory of accelerators, as far as they say how much there is in all."""
        changes = [one for one in self.changes if (said := one.args).kind == ACCELERATOR and said.reserved >= 0]
        self.changes.clear()
        changed, count = [one.args for one in changes], len(changes)
        start = np.fromiter([one.ts for one in changes], np.float64, count)
        credible = np.abs(start) < LATEST
        columns: dict[str, Array] = {
            "device": np.fromiter([one.device & 0x7FFF for one in changed], np.int16, count),
            "allocated": np.fromiter([one.allocated for one in changed], np.int64, count),
            "reserved": np.fromiter([one.reserved for one in changed], np.int64, count),
        }
        self.memory.append(start=start[credible], **{name: values[credible] for name, values in columns.items()})

    def _add_device(self, kind: Kind, spans: list[Span]) -> None:
        count = len(spans)
        arguments = [span.args or _NO_ARGUMENTS for span in spans]
        queues = [
            (span.pid, own.device, own.stream if own.stream != -1 else span.tid)
            for span, own in zip(spans, arguments, strict=True)
        ]
        collectives = [(own.collective, _group(own)) if own.collective else ("", "") for own in arguments]
        self._append(
            self.device,
            spans,
            correlation=np.fromiter([own.correlation for own in arguments], np.int64, count),
            name=np.fromiter(map(self.device_names.__getitem__, [span.name for span in spans]), np.int32, count),
            queue=np.fromiter(map(self.queues.__getitem__, queues), np.int16, count),
            collective=np.fromiter(map(self.collectives.__getitem__, collectives), np.int16, count),
            kind=np.full(count, kind, dtype=np.int8),
        )

    def _add_host(self, kind: Kind, spans: list[Span]) -> None:
        count = len(spans)
        name = np.fromiter(map(self.host_names[kind].__getitem__, [span.name for span in spans]), np.int32, count)
        self._classify_new_names()
        activity = self.activities[name]
        if kind is Kind.FRAME:
            self.stacks = True
            wanted = activity != Activity.DROPPED
            spans, name, activity = list(compress(spans, wanted)), name[wanted], activity[wanted]
        thread = self._threads(spans)
        if kind is Kind.RUNTIME:
            chosen = self.launching[name]
            self._add_launches(list(compress(spans, chosen)), thread[chosen], self.replaying[name[chosen]])
        for value in distinct(activity):
            chosen = activity == value
            rows = spans if chosen.all() else list(compress(spans, chosen))
            self._append(self.host[Activity(value)], rows, name=name[chosen], thread=thread[chosen])

    def _add_launches(self, spans: list[Span], thread: Array, replays: Array) -> None:
        linked = np.fromiter([span.args.correlation if span.args else -1 for span in spans], np.int64, len(spans))
        start = np.fromiter([span.ts for span in spans], np.float64, len(spans))
        useful = (linked >= 0) & (np.abs(start) < LATEST)
        columns = {"correlation": linked, "start": start, "thread": thread, "replays": replays}
        self.launches.append(**{name: values[useful] for name, values in columns.items()})

    def _append(self, table: Table, spans: list[Span], **columns: Array) -> None:
        """Adds rows with their start and end; a negative length counts as none, an incredible time drops the row."""
        start = np.fromiter([span.ts for span in spans], np.float64, len(spans))
        length = np.fromiter([span.dur for span in spans], np.float64, len(spans))
        self.negative += int((length < 0).sum())
        np.maximum(length, 0.0, out=length)
        credible = (np.abs(start) < LATEST) & (length < LATEST)
        if not credible.all():
            self.misplaced += int((~credible).sum())
            start, length = start[credible], length[credible]
            columns = {name: values[credible] for name, values in columns.items()}
        table.append(start=start, end=start + length, **columns)

    def _threads(self, spans: list[Span]) -> Array:
        """The number of each span's thread, shape [spans]; within one process, as mostly, with a key of one part."""
        processes, threads = [span.pid for span in spans], [span.tid for span in spans]
        if not spans or processes.count(processes[0]) < len(spans):
            keys = zip(processes, threads, strict=True)
            return np.fromiter(map(self.threads.__getitem__, keys), np.int32, len(spans))
        if self.own_threads.process != processes[0]:
            self.own_threads = _ThreadsOf(self.threads, processes[0])
        return np.fromiter(map(self.own_threads.__getitem__, threads), np.int32, len(spans))

    def _classify_new_names(self) -> None:
        new = self.host_numbers.keys_met[len(self.activities) :]
        if new:
            activities = np.array([activity_of(kind, name) for kind, name in new], dtype=np.int8)
            launching = np.array([kind is Kind.RUNTIME and may_launch(name) for kind, name in new], dtype=bool)
            self.activities = np.append(self.activities, activities)
            self.launching = np.append(self.launching, launching)
            replaying = np.array([kind is Kind.RUNTIME and replays_graph(name) for kind, name in new], dtype=np.int8)
            self.replaying = np.append(self.replaying, replaying)

    def finish(self, path: Path, records: TraceRecords) -> Trace:
        if not self.events:
            raise InputError(
                Cause.DAMAGED_TRACE,
                f"{path}: holds no events that can be read, so there is nothing to analyse; export it again",
            )
        for kind, spans in self.waiting.by_kind.items():
            if spans:
                self._put(kind, spans)
        self._add_memory()
        for table in (self.device, self.launches, self.memory, *self.host.values()):
            table.finish()
        self.device.keep(np.argsort(self.device["start"], kind="stable").astype(np.int32))
        self.launches.keep(np.argsort(self.launches["correlation"], kind="stable").astype(np.int32))
        base = records.properties.get("baseTimeNanoseconds", 0)
        return Trace(
            path=path,
            device=self.device,
            launches=self.launches,
            host=self.host,
            device_names=[name for _, name in self.device_numbers.keys_met],
            host_names=[name for _, name in self.host_numbers.keys_met],
            queues=self.queues.keys_met,
            threads=self.threads.keys_met,
            collectives=[Collective(*key) if isinstance(key, tuple) else key for key in self.collectives.keys_met],
            properties=records.properties,
            memory=self.memory,
            base=base / 1000 if isinstance(base, (int, float)) and not isinstance(base, bool) else 0.0,
            events=self.events,
            notes=self._notes(records),
            truncated=bool(records.truncated),
            stacks=self.stacks,
        )

    def _notes(self, records: TraceRecords) -> list[str]:
        notes = []
        if records.truncated:
            notes.append(
                f"The trace is incomplete: {records.truncated}. The {self.events:,} events before that were used."
            )
        if records.repaired:
            notes.append(f"{records.repaired:,} events were not valid JSON and were read after small repairs.")
        if records.lost:
            notes.append(f"{records.lost:,} events could not be read and are missing from all numbers.")
        if self.negative:
            notes.append(f"{self.negative:,} events had a negative duration, which was taken as zero.")
        if self.misplaced:
            notes.append(f"{self.misplaced:,} events had no usable time stamp and were left out.")
        if any(table.full for table in (self.device, self.launches, *self.host.values())):
            notes.append(f"The trace holds more than {MOST_ROWS:,} events of one kind; the rest of them was left out.")
        return notes


def _on_device(span: Span) -> bool:
    """Whether an event of an unknown category carries a stream, as device work does."""
    stream = span.args.stream if span.args else -1
    return isinstance(stream, int) and stream >= 0


def _group(arguments: Arguments) -> str:
    ranks = arguments.group_ranks
    return f"{arguments.group} {ranks if isinstance(ranks, str) else ','.join(map(str, ranks))}".strip()[:LONGEST_NAME]
