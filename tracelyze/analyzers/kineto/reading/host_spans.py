"""Ranges of the host as a closer look at a trace wants them: with their Python stacks and autograd's numbers."""

from __future__ import annotations

import re
from typing import Any, Final, Union

import msgspec
from msgspec import Struct

from tracelyze.analyzers.kineto.reading.events import DECODE_ERRORS, SKIPPED_PHASES, Label
from tracelyze.analyzers.kineto.reading.salvage import salvage
from tracelyze.analyzers.kineto.reading.source import TraceBytes

LONGEST_NAME: Final = 400
LONGEST_STACK: Final = 4000
LONGEST_DIMS: Final = 400
MOST_SHAPES: Final = 4
"""Characters of an operator's sizes that are looked at, and tensors whose shapes are said."""

_SIZES: Final = re.compile(rb"\[(\d{1,12}(?:, ?\d{1,12})*)\]")


class HostArguments(Struct, gc=False):
    """What a host event says about itself, as far as a closer look wants it."""

    stack: str = msgspec.field(name="Call stack", default="")
    sequence: Label = msgspec.field(name="Sequence number", default=-1)
    forward: Label = msgspec.field(name="Fwd thread id", default=0)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())


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


def shapes(dims: msgspec.Raw) -> str:
    """The sizes of an operator's tensors: `inputs [32 \u00d7 128], [64]`; empty where none were recorded."""
    found = _SIZES.findall(bytes(dims)[:LONGEST_DIMS])[:MOST_SHAPES]
    return "inputs " + ", ".join(f"[{by(sizes)}]" for sizes in found) if found else ""


def by(sizes: bytes) -> str:
    """`32 \u00d7 128` of `32, 128`."""
    return sizes.decode().replace(" ", "").replace(",", " \u00d7 ")


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
