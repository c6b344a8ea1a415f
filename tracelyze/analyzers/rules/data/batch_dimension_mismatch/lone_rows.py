"""Fields of batches with one row for all samples: whose row it is, as a collate_fn was seen to return it."""

from __future__ import annotations

import ast
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

_LOOP: Final = re.compile(r"\s*for (?P<sample>\w+) in \w+:\s*(?:#|$)")
_HEAD: Final = re.compile(r"\s*(?P<head>for (?P<set>[\w, ()]+) in (?:\w+|enumerate\(\w+\))):\s*(?:#|$)")
_FIRST_ALONE: Final = re.compile(r"""(?<![\w\])])\[(?P<samples>\w+)\[0\](?P<part>(?:\[["']?\w+["']?\]|\.\w+)*)\]""")


class BelowLoop(NamedTuple):
    """A line that takes one field of the last sample, as it stands below the loop over all of them; what to do."""

    place: Location
    diff: Diff
    fix: str
    code: str


def below_loop(process: Process, collates: Location | None, field: str) -> BelowLoop | None:
    """The only line below a loop over the samples that takes this field of the last one."""
    return _appended(process, collates, field) or _of_loop_variable(process, collates, field)


def _of_loop_variable(process: Process, collates: Location | None, field: str) -> BelowLoop | None:
    """The only line with this field, below a loop, which makes a list of nothing but what the loop set last:
    `"shop": torch.tensor([shop])` below `for image, shop in samples:`."""
    if collates is None:
        return None
    lines = {at: text for at, text in recorded_text.around(process, collates).items() if at >= collates.line}
    found = []
    for at, text in lines.items():
        head = max((one for one in lines if one < at and _HEAD.match(lines[one])), default=0)
        loop = _HEAD.match(lines.get(head, ""))
        inside = [recorded_text.indent_of(one) for n, one in lines.items() if head < n <= at and one.strip()]
        if loop is None or not inside or min(inside) > recorded_text.indent_of(lines[head]):
            continue
        names = "|".join(re.findall(r"\w+", loop["set"]))
        lone = re.findall(rf"\(\[((?:{names})\b(?:\[[\"']?\w+[\"']?\]|\.\w+)*)\][,)]", text)
        named = field.isdecimal() or re.search(rf"\b{re.escape(field)}\b", text) is not None
        if named and len(lone) == 1:
            rows = f"[{lone[0]} {loop['head']}]"
            edited = text.replace(f"[{lone[0]}]", rows)
            fix = f"Take {lone[0]} of every sample in line {at}: below the loop (line {head}) it is the last one's."
            place = collates.at(at, text)
            found.append(BelowLoop(place, Diff(collates.file, at, [text], [edited]), fix, f"{rows}  # in line {at}"))
    return found[0] if len(found) == 1 else None


def unpacked(process: Process, collates: Location | None, field: str) -> str:
    """The field of a batch made of all samples, which the collate_fn takes apart: `for image, shop in samples:`."""
    lines = recorded_text.around(process, collates) if collates is not None else {}
    loops = [loop for _, text in sorted(lines.items()) if (loop := _HEAD.match(text))]
    heads = {loop["head"] for loop in loops if field in re.findall(r"\w+", loop["set"]) and "," in loop["set"]}
    return f"batch['{field}'] = torch.stack([torch.as_tensor({field}) {heads.pop()}])" if len(heads) == 1 else ""


def _appended(process: Process, collates: Location | None, field: str) -> BelowLoop | None:
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
            place = collates.at(end, lines[end])
            at = collates.at(head, text)
            fix = f"Move line {place.line} into the loop over the samples (line {at.line})."
            code = f"{at.source}\n    ...\n    {place.source}  # in the loop"
            found.append(BelowLoop(place, Diff(collates.file, end, [lines[end]], [f"    {lines[end]}"]), fix, code))
    return found[0] if len(found) == 1 else None


def of_one(process: Process, loader: Any, field: str, limits: Limits) -> tuple[str, int]:
    """Whose row it was, "first" or "last", and in how many batches whose samples differ in this field; if it was so in
    all of them and is neither chance nor the largest or smallest of their values. Else empty, and 0."""
    rows = [row for row in process.events_of("lone-row") if row["name"] == field]
    counts = [json.loads(row["text"]) for row in rows if row["value"] == loader]
    if not counts:
        return "", 0
    seen = counts[-1]
    known = seen["looks"] >= limits["batches"] and seen["extreme"] < seen["looks"]
    if not known or seen["chance"] > math.log10(limits["chance"]):
        return "", 0
    whose = next((one for one in ("last", "first") if seen.get(one) == seen["looks"]), "")
    return whose, int(seen["looks"]) if whose else 0


def of_all(process: Process, place: Location | None) -> Diff | None:
    """The edit that makes a list of the first sample's field alone, `[samples[0]["site"]]`, one of all samples'; None
    where the line has none, or several."""
    known = recorded_text.line_at(process, place) if place is not None else None
    lone = list(_FIRST_ALONE.finditer(known[1])) if known else []
    if place is None or known is None or len(lone) != 1:
        return None
    name = "sample" if lone[0]["samples"] != "sample" else "one"
    rows = f"[{name}{lone[0]['part']} for {name} in {lone[0]['samples']}]"
    text = known[1][: lone[0].start()] + rows + known[1][lone[0].end() :]
    return Diff(place.file, place.line, [known[0] + known[1]], [known[0] + text])


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
