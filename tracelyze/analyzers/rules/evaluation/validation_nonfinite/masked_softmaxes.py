"""A softmax over positions of which padding is filled with minus infinity: NaN for a row of nothing but padding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_MINUS_INFINITY: Final = re.compile(r"-\s*(?:math\.|np\.|torch\.)?inf\b|float\(\s*[\"']-inf")
_PADDING: Final = re.compile(r"pad|valid|missing|absent|empty|length", re.IGNORECASE)  # no causal mask
_ONCE: Final = ("__init__", "<module>")  # before the training, which would have met it
FIX: Final = (
    "Give samples of nothing but padding shares of 0, or leave them out. A weight of 0 in the loss does not do that: 0 "
    "times NaN is NaN."
)


class MaskedSoftmax(NamedTuple):
    """The line that fills, a sentence, and the softmax with 0 for such rows."""

    place: Location
    said: str
    code: str


def behind(process: Process, read: Location) -> MaskedSoftmax | None:
    """The only such line, if no other line is known that may make what `read` reads back no number: not by what the
    training does, nor by what comes after."""
    found = {one.file_line: (one, softmax) for softmax in _softmaxes(process) for one in _fills(process, softmax)}
    backward = process.location("backward")
    training = backward.file_function if backward is not None else None
    others = [
        one
        for role in ("singular", "singular-array")
        for one in process.locations(role)
        if one.function not in _ONCE
        and one.file_function != training
        and not (one.file_function == read.file_function and one.line > read.line)
    ]
    if len(found) != 1 or others:
        return None
    ((place, softmax),) = found.values()
    own = own_statement.at(process, softmax)
    call = own.only_call("softmax") if own is not None else None
    code = own.parsed.with_parts({call: f"{own.parsed.text_of(call)}.nan_to_num(0.0)"}) if own and call else ""
    said = (
        f"Of the lines that are known, one may make it: line {place.line} fills padding with -inf before the softmax "
        f"of line {softmax.line}, which is NaN for a sample of nothing but padding."
    )
    return MaskedSoftmax(
        place, said, own.dedented(code) if own and code else "share = scores.softmax(-1).nan_to_num(0.0)"
    )


def _softmaxes(process: Process) -> list[Location]:
    return [*process.locations("softmax"), *process.locations("attention")]


def _fills(process: Process, softmax: Location) -> list[Location]:
    """The lines above it in its function that fill padding with minus infinity."""
    lines = recorded_text.of_function(process, softmax)
    at = [number for number, text in lines.items() if number <= softmax.line and _MINUS_INFINITY.search(text)]
    filling = [number for number in at if _PADDING.search(lines[number])]
    return [softmax.at(one, lines[one]) for one in filling]
