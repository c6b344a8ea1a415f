"""The events of a Kineto trace, as typed records that decode straight from JSON text.

Only what an analysis uses is decoded; every other key is skipped without being built. The phase `ph` selects the
record, so that flow arrows and counters, often half of a file, cost next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Final, Union

import msgspec
from msgspec import Meta, Struct

SKIPPED_PHASES: Final = "MBEiICbnestfPNODVvRcr()=,STpFL"

Whole = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Label = Whole | str


class Arguments(Struct, gc=False):
    """What an event says about itself. Numbers are -1 where the trace has none."""

    correlation: Whole = -1
    stream: Label = -1
    device: Label = -1
    collective: str = msgspec.field(name="Collective name", default="")
    group: str = msgspec.field(name="Process Group Name", default="")
    group_ranks: str | list[Any] = msgspec.field(name="Process Group Ranks", default="")


class Span(Struct, gc=False, tag_field="ph", tag="X"):
    """Something with a start and a duration, both in microseconds."""

    cat: str = ""
    name: str = ""
    pid: Label = -1
    tid: Label = -1
    ts: float = math.nan
    dur: float = 0.0
    args: Arguments | None = None


class MemoryArguments(Struct, gc=False):
    """What a change of memory says. Device type 1 is an accelerator; -1 where the trace has no number."""

    kind: Whole = msgspec.field(name="Device Type", default=-1)
    device: Whole = msgspec.field(name="Device Id", default=-1)
    allocated: Whole = msgspec.field(name="Total Allocated", default=-1)
    reserved: Whole = msgspec.field(name="Total Reserved", default=-1)


class Instant(Struct, gc=False, tag_field="ph", tag="i"):
    """Something without a duration; of these the changes of memory are used."""

    name: str = ""
    ts: float = math.nan
    args: MemoryArguments | None = None


_SKIPPED = tuple(
    msgspec.defstruct(f"Skipped{number}", [], tag_field="ph", tag=phase, gc=False)
    for number, phase in enumerate(SKIPPED_PHASES)
    if phase != "i"
)
_ANY_RECORD: Any = Union[(Span, Instant, *_SKIPPED)]
_decoder: Any = msgspec.json.Decoder(list[_ANY_RECORD])

decode_records: Final[Callable[[bytes | memoryview], list[Any]]] = _decoder.decode
"""A JSON array of records as Span and skipped ones; raises on anything that is not exactly that."""

DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What `decode_records` raises: text that is not UTF-8 is a ValueError, nesting without end a RecursionError."""


def lenient(record: Any) -> Span | None:
    """A record that the strict decoder refused, read field by field; None where it is no event that we use.

    Raises ValueError where the record is an event whose name, start or length cannot be made out.
    """
    if not isinstance(record, dict):
        raise ValueError("not an object")
    arguments = record.get("args")
    if not isinstance(arguments, dict):
        arguments = {}
    if record.get("ph") != "X":
        return None
    ranks = arguments.get("Process Group Ranks", "")
    return Span(
        cat=_text(record.get("cat")),
        name=_text(record.get("name")),
        pid=_label(record.get("pid")),
        tid=_label(record.get("tid")),
        ts=_number(record.get("ts")),
        dur=_number(record.get("dur") or 0.0),
        args=Arguments(
            correlation=_whole(arguments.get("correlation"), -1),
            stream=_label(arguments.get("stream", -1)),
            device=_label(arguments.get("device", -1)),
            collective=_text(arguments.get("Collective name")),
            group=_text(arguments.get("Process Group Name")),
            group_ranks=ranks if isinstance(ranks, (str, list)) else "",
        ),
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else repr(value)[:200]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("not a number")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("not finite") from None
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


def _whole(value: Any, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return default
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return default
    return number if -(2**62) <= number <= 2**62 else default


def _label(value: Any) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**62) <= value <= 2**62:
        return value
    return _text(value)
