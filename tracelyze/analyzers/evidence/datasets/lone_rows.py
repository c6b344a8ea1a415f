"""Fields of batches with one row for all samples: whose row it is, as a collate_fn was seen to return it."""

from __future__ import annotations

import ast
import json
import math
import re
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location


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
