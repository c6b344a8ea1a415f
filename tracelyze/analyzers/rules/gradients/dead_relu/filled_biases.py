"""The line that fills weights or biases, where a ReLU never was alive: biases, only if that layer's are far from 0."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import script_lines
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_OF_BIASES: Final = re.compile(
    r"\b(?:constant_|uniform_)\s*\(\s*(?P<given>[\w.]*\bbias)\b|(?P<own>[\w.]*\bbias)(?:\.data)?\.(?:fill_|uniform_)\s*\("
)


class Filled(NamedTuple):
    """The line, what a summary says of it, what to do, and an example; the last two of biases alone."""

    place: Location
    said: str
    fix: str = ""
    code: str = ""


def of(process: Process, layer: str) -> Filled | None:
    """The only place of the script that fills weights or biases, for the layer before a ReLU: of biases, one whose own
    are larger than what torch draws for them. None where they are not, or were not measured: they are others' then."""
    place = script_lines.filled(process)
    found = _OF_BIASES.search(place.source) if place is not None else None
    if place is None or found is None:
        return Filled(place, script_lines.said(place, script_lines.FILLS)) if place is not None else None
    size = _size_beyond_drawn(process, layer)
    if size is None:
        return None
    bias = found["given"] or found["own"]
    return Filled(
        place,
        f" Line {place.line} alone fills biases: those of {layer} are about {number(size)} away from 0.",
        f"Fill the biases of layers before a ReLU with 0, and give what line {place.line} fills them with to the layer "
        "alone that is meant to have it, such as the last one.",
        f"nn.init.zeros_({bias})  # in place of line {place.line}, for layers before a ReLU",
    )


def _size_beyond_drawn(process: Process, layer: str) -> float | None:
    """How large the biases of a layer are at first, by their root mean square; None where torch may have drawn them:
    evenly, up to one over the root of the layer's inputs."""
    first: dict[str, tuple[float | None, float | None]] = {}
    for row in process.tables["parameters"].records():
        first.setdefault(str(row["parameter"]), (row["weight_norm"], row["elements"]))
    weight, bias = first.get(f"{layer}.weight"), first.get(f"{layer}.bias")
    if weight is None or bias is None or bias[0] is None or not bias[1] or not weight[1]:
        return None
    size, drawn = bias[0] / math.sqrt(bias[1]), math.sqrt(bias[1] / weight[1])
    return size if size > drawn else None
