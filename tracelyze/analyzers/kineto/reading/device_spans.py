"""What activities of a device say of themselves: grid and block of a kernel, bytes of a copy, elements of a collective.

Read for the steps that are shown only. A value that is not what it should be is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, Union

import msgspec
from msgspec import Raw, Struct

from tracelyze import formatting
from tracelyze.analyzers.kineto.reading import stored_said
from tracelyze.analyzers.kineto.reading.blocks import Blocks
from tracelyze.analyzers.kineto.reading.events import DECODE_ERRORS, SKIPPED_PHASES, Label
from tracelyze.analyzers.kineto.reading.host_spans import by, read_part
from tracelyze.analyzers.kineto.reading.source import TraceBytes
from tracelyze.analyzers.kineto.timeline.categories import Kind, kind_of

MOST: Final = 200_000
"""Activities whose details are kept."""

_NONE: Final = Raw()
_NUMBERS: Final = re.compile(rb"\[\d{1,10}(?:, ?\d{1,10}){0,2}\]")
_WHOLE: Final = re.compile(rb"\d{1,15}")
_WORD: Final = re.compile(rb'"\w{1,20}"')


class DeviceArguments(Struct, gc=False):
    """The arguments of an event of the device that a reader asks for, as they stand in the file."""

    stream: Raw = _NONE
    grid: Raw = _NONE
    block: Raw = _NONE
    bytes: Raw = _NONE
    elements: Raw = msgspec.field(name="In msg nelems", default=_NONE)
    type: Raw = msgspec.field(name="dtype", default=_NONE)


class DeviceSpan(Struct, gc=False, tag_field="ph", tag="X"):
    """An activity of a device; what begins it is in microseconds."""

    cat: str = ""
    tid: Label = -1
    ts: float = 0.0
    args: DeviceArguments | None = None


_SKIPPED = tuple(
    msgspec.defstruct(f"Beside{number}", [], tag_field="ph", tag=phase, gc=False)
    for number, phase in enumerate(SKIPPED_PHASES)
)
_RECORD: Any = Union[(DeviceSpan, *_SKIPPED)]
_decoder: Any = msgspec.json.Decoder(list[_RECORD])


def details(path: Path, blocks: Blocks, windows: list[tuple[float, float]]) -> dict[tuple[float, str], str]:
    """What the activities of devices that begin in one of `windows` say, by their begin and stream.

    `path` is a trace file, with the `blocks` that were found in it, or the folder of an imported trace.
    """
    said = stored_said.read_said(path, windows) if path.is_dir() else said_by(path, blocks, windows)
    return {(start, stream): text for start, stream, text in islice(said, MOST)}


def said_by(path: Path, blocks: Blocks, windows: list[tuple[float, float]]) -> Iterator[tuple[float, str, str]]:
    """Begin, stream and words of each activity of a trace file that begins in one of `windows` and has some to say."""
    with TraceBytes(path) as source:
        for offset, length in blocks.with_device(windows):
            source.skip_to(offset)
            for span in _decoded(read_part(source, length)):
                if type(span) is DeviceSpan and span.args is not None and _is_shown(span, windows):
                    said = _said(span.args)
                    if said:
                        yield span.ts, _stream(span), said


def _decoded(text: bytes) -> list[Any]:
    try:
        return list(_decoder.decode(b"[" + text.strip(b", \t\r\n") + b"]"))
    except DECODE_ERRORS:
        return []


def _is_shown(span: DeviceSpan, windows: list[tuple[float, float]]) -> bool:
    return kind_of(span.cat) in (Kind.KERNEL, Kind.COPY, Kind.SET) and any(
        low <= span.ts <= high for low, high in windows
    )


def _said(args: DeviceArguments) -> str:
    parts = []
    for name, value in (("grid", args.grid), ("block", args.block)):
        text = bytes(value)
        if _NUMBERS.fullmatch(text):
            parts.append(f"{name} {by(text[1:-1])}")
    if _WHOLE.fullmatch(size := bytes(args.bytes)):
        parts.append(formatting.size(int(size)))
    if _WHOLE.fullmatch(count := bytes(args.elements)):
        kind = bytes(args.type)
        parts.append(f"{int(count):,} elements" + (f" of {kind[1:-1].decode()}" if _WORD.fullmatch(kind) else ""))
    return ", ".join(parts)


def _stream(span: DeviceSpan) -> str:
    """The stream as the first look at the trace names it: that of the arguments, else the thread of the event."""
    text = bytes(span.args.stream) if span.args is not None else b""
    return text.decode() if _WHOLE.fullmatch(text) else str(span.tid)
