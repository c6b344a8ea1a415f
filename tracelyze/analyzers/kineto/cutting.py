"""A stretch of a trace as a trace of its own, which Perfetto opens at once: the events as they stand in the file.

Every event that touches the stretch is kept whole, and so is what belongs to one of those: the call that launched a
kernel, the kernel that a call launched, the arrow between them. Of an imported trace the columns that it holds are
written as events again.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw, Struct

from tracelyze.analyzers.kineto.reading import rankfiles, stored_said
from tracelyze.analyzers.kineto.reading.events import DECODE_ERRORS
from tracelyze.analyzers.kineto.reading.host_spans import read_part
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.kineto.reading.records import TraceRecords
from tracelyze.analyzers.kineto.reading.source import TraceBytes
from tracelyze.analyzers.kineto.reading.stored_ranges import read_ranges
from tracelyze.analyzers.kineto.timeline.categories import Kind
from tracelyze.analyzers.kineto.timeline.steps import find_steps
from tracelyze.analyzers.kineto.timeline.trace import Trace
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import number

_ABOUT_ALL: Final = "M"
_ARROWS: Final = ("s", "t", "f")
_LAUNCHES: Final = "ac2g"
_TAIL: Final = 1 << 20  # bytes
_CATEGORY: Final = {Kind.KERNEL: "kernel", Kind.COPY: "gpu_memcpy", Kind.SET: "gpu_memset"}


class _Event(Struct, gc=False):
    """What decides whether an event is kept. Any value may stand where a number should."""

    ph: Any = ""
    cat: Any = ""
    id: Any = None
    ts: Any = None
    dur: Any = None
    args: Any = None

    @property
    def link(self) -> int | None:
        """The number that a launch and its work share; None for other events."""
        if self.ph in _ARROWS:
            found = self.id if self.cat == _LAUNCHES else None
        else:
            found = self.args.get("correlation") if isinstance(self.args, dict) else None
        return found if isinstance(found, int) and found > 0 else None

    def touches(self, begin: float, end: float) -> bool:
        """Whether it happens, at least in part, between two times."""
        if not isinstance(self.ts, int | float):
            return False
        return _touch(self.ts, self.ts + (self.dur if isinstance(self.dur, int | float) else 0.0), begin, end)


def _touch(start: float, stop: float, begin: float, end: float) -> bool:
    """Whether something happens between two times; what only ends as they begin does not."""
    return begin <= start < end or start < begin < stop


_events: Any = msgspec.json.Decoder(list[_Event])
_event: Any = msgspec.json.Decoder(_Event)
_json: Final = json.JSONDecoder()
_raw: Any = msgspec.json.Decoder(list[Raw])


@dataclass(frozen=True)
class Cut:
    """What was written: how many events, of how many, and how many could not be read."""

    kept: int
    events: int
    lost: int = 0


def one_trace(path: Path) -> Path:
    """The trace that `path` stands for. InputError where there are several, naming them."""
    found = rankfiles.trace_files([path])
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise InputError(Cause.WRONG_OPTION, f"{path}: holds {len(found)} traces; name one of them: {names}{more}")
    return found[0]


def of_step(path: Path, step: int) -> tuple[float, float]:
    """When a step of a trace begins and ends, in microseconds on the clock of the trace. InputError if it has none."""
    steps = find_steps(read_trace(path))
    if steps is None or not steps.counted:
        raise InputError(Cause.WRONG_OPTION, f"--step {step}: no steps were found in {path}; use --from and --to")
    place = np.flatnonzero(steps.number == step)
    if not len(place):
        first, last = int(steps.number.min()), int(steps.number.max())
        raise InputError(Cause.WRONG_OPTION, f"--step {step}: {path} holds the steps {first:,} to {last:,}")
    return float(steps.start[place[0]]), float(steps.end[place[0]])


def write(path: Path, target: Path, begin: float, end: float) -> Cut:
    """Writes the events of trace `path` between two times of its clock (microseconds) to `target`, a .json or .json.gz.

    Raises InputError where the trace cannot be read, where it has nothing there, and where `target` cannot be written.
    """
    properties, texts, events, lost = _of_import(path, begin, end) if path.is_dir() else _of_file(path, begin, end)
    if not texts:
        raise InputError(
            Cause.WRONG_OPTION,
            f"{path}: nothing happens from {number(begin)} to {number(end)} us; times are those of the events (ts)",
        )
    head = json.dumps(properties)[1:-1]
    text = b"{" + (head.encode() + b",\n" if head else b"") + b'"traceEvents": [\n' + b",\n".join(texts) + b"\n]}\n"
    try:
        target.write_bytes(gzip.compress(text, 6, mtime=0) if target.suffix == ".gz" else text)
    except OSError as error:
        raise InputError(Cause.UNWRITABLE, f"cannot write {target}: {error.strerror or error}") from error
    return Cut(len(texts), events, lost)


def _of_file(path: Path, begin: float, end: float) -> tuple[dict[str, Any], list[bytes], int, int]:
    """The file's other keys, the events to keep, how many there are, and how many could not be read. Reads it twice:
    a launch stands before or behind its work, and may lie outside the stretch."""
    links: set[int] = set()
    places: list[tuple[int, int]] = []
    met = count = behind = 0
    happens = False
    with TraceBytes(path) as source, TraceBytes(path) as again:
        records = TraceRecords(source)
        for found in records:
            places.append(records.place)
            behind = sum(records.place)
            events = [event for event, _ in _events_of(again, records.place)]
            met, count = met + len(found), count + len(events)
            inside = [event for event in events if event.touches(begin, end)]
            happens = happens or bool(inside)
            links.update(event.link for event in inside if event.link is not None)
    if not happens:
        return {}, [], count, 0
    places.append((behind, min(source.total - behind, _TAIL)))  # records at the end that the analysis has no use for
    kept: list[bytes] = []
    with TraceBytes(path) as source:
        for place in places:
            for event, text in _events_of(source, place):
                if event.ph == _ABOUT_ALL or event.touches(begin, end) or event.link in links:
                    kept.append(bytes(text))
    return records.properties, kept, count, records.lost + max(met - count, 0)


def _events_of(source: TraceBytes, place: tuple[int, int]) -> list[tuple[_Event, Raw]]:
    """The events of a part of the file, each with its text; as far as the part is valid JSON."""
    source.skip_to(place[0])
    part = read_part(source, place[1]).strip(b", \t\r\n")
    text = b"[" + part.rstrip(b"] \t\r\n") + b"]"  # the last part ends with the array
    try:
        return list(zip(_events.decode(text), _raw.decode(text), strict=True))
    except DECODE_ERRORS:
        return list(_one_by_one(part.decode("utf-8", "replace")))


def _one_by_one(text: str) -> Iterator[tuple[_Event, Raw]]:
    """The events up to the end of the array, or up to the first that is not valid JSON."""
    at = 0
    while text[at : at + 1] == "{":
        try:
            end = _json.raw_decode(text, at)[1]
            yield _event.decode(text[at:end]), Raw(text[at:end].encode())
        except (*DECODE_ERRORS, ValueError):
            return
        at = end + len(text[end:]) - len(text[end:].lstrip(", \t\r\n"))


def _of_import(folder: Path, begin: float, end: float) -> tuple[dict[str, Any], list[bytes], int, int]:
    """The part of an imported trace that lies in the window, made from its columns."""
    trace = read_trace(folder)
    window = [(begin, end)]
    events = [
        {
            "ph": "X",
            "cat": span.cat,
            "name": span.name,
            "pid": span.pid,
            "tid": span.tid,
            "ts": span.ts,
            "dur": span.dur,
            **({"args": {"Call stack": span.args.stack}} if span.args is not None and span.args.stack else {}),
        }
        for part in read_ranges(folder, window)
        for span in part
        if _touch(span.ts, span.ts + span.dur, begin, end)
    ]
    events += _device_events(trace, folder, begin, end)
    return trace.properties, [json.dumps(event).encode() for event in events], trace.events, 0


def _device_events(trace: Trace, folder: Path, begin: float, end: float) -> Iterator[dict[str, Any]]:
    """The device's activities that touch the stretch, each with the arrow from the call that launched it."""
    device, launches = trace.device, trace.launches
    rows = np.flatnonzero((device["start"] < end) & (device["end"] > begin))
    first = float(device["start"][rows].min()) if len(rows) else begin
    said = {(start, stream): text for start, stream, text in stored_said.read_said(folder, [(first, end)])}
    numbers = launches["correlation"]
    for row in rows.tolist():
        process, _, stream = trace.queues[int(device["queue"][row])]
        start, link = float(device["start"][row]), int(device["correlation"][row])
        where = {"pid": process, "tid": stream, "ts": start}
        detail = said.get((start, str(stream)))
        yield {
            "ph": "X",
            "cat": _CATEGORY.get(Kind(int(device["kind"][row])), "kernel"),
            "name": trace.device_names[int(device["name"][row])],
            **where,
            "dur": float(device["end"][row]) - start,
            "args": {"correlation": link, "stream": stream} | ({"detail": detail} if detail else {}),
        }
        place = int(np.searchsorted(numbers, link))
        if link > 0 and place < len(numbers) and int(numbers[place]) == link:
            owner, thread = trace.threads[int(launches["thread"][place])]
            arrow = {"cat": _LAUNCHES, "name": _LAUNCHES, "id": link}
            yield arrow | {"ph": "s", "pid": owner, "tid": thread, "ts": float(launches["start"][place])}
            yield arrow | {"ph": "f", "bp": "e", **where}
