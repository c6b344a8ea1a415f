"""Ranges of the host as a closer look at a trace wants them: with their Python stacks and autograd's numbers."""

from __future__ import annotations

from typing import Any, Final, Union

import msgspec
from msgspec import Struct

from tracelyze.analyzers.kineto.reading.events import DECODE_ERRORS, SKIPPED_PHASES, Label
from tracelyze.analyzers.kineto.reading.salvage import salvage
from tracelyze.analyzers.kineto.reading.source import TraceBytes

LONGEST_NAME: Final = 400
LONGEST_STACK: Final = 4000


class HostArguments(Struct, gc=False):
    """What a host event says about itself, as far as a closer look wants it."""

    stack: str = msgspec.field(name="Call stack", default="")
    sequence: Label = msgspec.field(name="Sequence number", default=-1)
    forward: Label = msgspec.field(name="Fwd thread id", default=0)


class HostSpan(Struct, gc=False, tag_field="ph", tag="X"):
    """A range of the host; times in microseconds."""

    cat: str = ""
    name: str = ""
    pid: Label = -1
    tid: Label = -1
    ts: float = 0.0
    dur: float = 0.0
    args: HostArguments | None = None


_SKIPPED = tuple(
    msgspec.defstruct(f"Other{number}", [], tag_field="ph", tag=phase, gc=False)
    for number, phase in enumerate(SKIPPED_PHASES)
)
_RECORD: Any = Union[(HostSpan, *_SKIPPED)]
_decoder: Any = msgspec.json.Decoder(list[_RECORD])


def read_part(source: TraceBytes, length: int) -> bytes:
    """The next `length` bytes, or what there is of them."""
    parts = []
    while length > 0 and (part := source.read(length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def decoded(text: bytes) -> list[Any]:
    """The events in a stretch of the event array."""
    text = text.strip(b", \t\r\n")
    try:
        return list(_decoder.decode(b"[" + text + b"]"))
    except DECODE_ERRORS:
        return salvage(text, final=True).events
