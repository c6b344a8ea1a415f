"""Lines of the training loop that keep a tensor beyond its step, with the autograd graph behind it.

Only the lines that were recorded around the loop's own calls are read, those of one function. A name holds a graph if
it is the loss, if the loss is computed from it, or if it is computed from such a name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.evidence import edits
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

NAME: Final = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*(?!\w*\s*[=(](?!=))")
ASSIGNED: Final = re.compile(r"(?P<names>[A-Za-z_][\w, ]*?)\s*=(?!=)\s*(?P<value>.+)")
STORED: Final = re.compile(
    r"(?:(?P<sum>[\w.]+(?:\[[^\]]*\])?)\s*\+=\s*|(?P<list>[\w.]+(?:\[[^\]]*\])*)\.append\(|"
    r"(?P<entry>[\w.]+\[[^\]]+\])\s*=(?!=)\s*)(?P<value>.+?)\)?$"
)
LENGTH: Final = re.compile(r"\blen\([^()]*\)")
FREED: Final = ("item(", "detach(", "float(", "int(", "tolist(", "numpy(", "no_grad")
"""What makes a number, or a tensor without a graph, of a tensor."""


class Kept(NamedTuple):
    """A line that stores something with its graph, and the edit that stores it without, where that is plain."""

    location: Location
    diff: Diff | None


def lines(optimization: Optimization) -> list[Kept]:
    """Lines in the function of the only backward that store a name with a graph, in order."""
    backward = optimization.backward_location
    match = backward and edits.BACKWARD.match(backward.source)
    if backward is None or not match:
        return []
    text = edits.recorded_lines(optimization.process, backward)
    holding = _holding(text, match["loss"])
    found = []
    for number, line in sorted(text.items()):
        statement = line.split("#")[0].strip()
        stored = STORED.fullmatch(statement)
        if not stored or any(word in statement for word in FREED):
            continue
        used = NAME.findall(LENGTH.sub("", stored["value"]))
        if stored["sum"] in holding or not holding.intersection(used):
            continue  # the loss itself, that is being added up, or something else
        location = Location(backward.file, number, backward.function, line.strip())
        found.append(Kept(location, _diff(location, line, stored)))
    return found


def _holding(text: dict[int, str], loss: str) -> set[str]:
    """Names that hold a graph."""
    assigned = [
        ({name.strip() for name in found["names"].split(",")}, set(NAME.findall(found["value"])))
        for _, line in sorted(text.items())
        if (found := ASSIGNED.fullmatch(line.split("#")[0].strip())) and not any(word in line for word in FREED)
    ]
    made = set().union(*(names for names, _ in assigned)) if assigned else set()
    holding = {loss}
    for names, used in reversed(assigned):
        if names & holding:
            holding |= used & made
    for names, used in assigned:
        if used & holding:
            holding |= names
    return holding


def _diff(location: Location, line: str, stored: re.Match[str]) -> Diff | None:
    value = stored["value"]
    if not value.isidentifier() or "#" in line:
        return None
    end = len(line) - len(line.lstrip()) + stored.end("value")
    without = ".item()" if stored["sum"] else ".detach()"
    return Diff(location.file, location.line, [line], [line[:end] + without + line[end:]])
