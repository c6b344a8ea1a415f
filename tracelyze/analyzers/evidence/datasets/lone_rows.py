"""Fields of batches with one row for all samples: whose row it is, as a collate_fn was seen to return it."""

from __future__ import annotations

import ast
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

_LOOP: Final = re.compile(r"\s*for (?P<sample>\w+) in \w+:\s*(?:#|$)")


class BelowLoop(NamedTuple):
    """A line that collects one field of the last sample, as it stands below the loop over all of them."""

    place: Location
    loop: Location
    diff: Diff

    @property
    def code(self) -> str:
        """The loop with this line in it."""
        return f"{self.loop.source}\n    ...\n    {self.place.source}  # in the loop"


def below_loop(process: Process, collates: Location | None, field: str) -> BelowLoop | None:
    """The only `append` of this field of a sample that follows right below the loop which sets that sample."""
    lines = recorded_text.around(process, collates) if collates is not None else {}
    found = []
    for head, text in lines.items():
        loop = _LOOP.match(text)
        if collates is None or loop is None or head < collates.line:
            continue
        depth = recorded_text.indent_of(text)
        below = [at for at in sorted(lines) if at > head and lines[at].strip()]
        end = next((at for at in below if recorded_text.indent_of(lines[at]) <= depth), None)
        taken = rf"\s*[\w.]+\.append\(.*\b{loop['sample']}\[[\"']?{re.escape(field)}[\"']?\]"
        if end is None or recorded_text.indent_of(lines[end]) < depth or not re.match(taken, lines[end]):
            continue
        if recorded_text.indent_of(lines.get(end - 1, "")) > depth and " for " not in lines[end]:
            place = Location(collates.file, end, collates.function, lines[end].strip())
            at = Location(collates.file, head, collates.function, text.strip())
            found.append(BelowLoop(place, at, Diff(collates.file, end, [lines[end]], [f"    {lines[end]}"])))
    return found[0] if len(found) == 1 else None


def of_the_last(process: Process, loader: Any, field: str, limits: Limits) -> int:
    """Batches in which the samples differ in this field and the row was the last sample's, if it was so in all of them
    and is neither chance nor the largest or smallest of their values; else 0."""
    rows = [row for row in process.events_of("lone-row") if row["name"] == field]
    counts = [json.loads(row["text"]) for row in rows if row["value"] == loader]
    if not counts:
        return 0
    seen = counts[-1]
    always = seen["last"] == seen["looks"] >= limits["batches"] and seen["extreme"] < seen["looks"]
    return int(seen["looks"]) if always and seen["chance"] <= math.log10(limits["chance"]) else 0


def collected(process: Process, place: Location | None, element: str) -> str:
    """The variable that the line sets anew for each sample, made of all of them; empty where that is not known.
    `element`: how a sample holds the field, as `[2]`."""
    own = own_statement.at(process, place)
    said = own.parsed.statement if own is not None else None
    if place is None or not isinstance(said, ast.Assign) or not isinstance(said.targets[0], ast.Name):
        return ""
    above = [text for number, text in sorted(recorded_text.around(process, place).items()) if number < place.line]
    named = re.findall(r"\bfor .+ in (?:enumerate\()?(\w+)\)?:", "\n".join(above))
    samples = named[-1] if named else "samples"
    made = f"torch.stack([torch.as_tensor(sample{element}) for sample in {samples}])"
    return f"{said.targets[0].id} = {made}  # below the loop, in place of line {place.line}"
