"""A loop over the parameters of two models that makes one the average of the other, and leaves out their buffers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.evidence import recorded_text, script_lines
from tracelyze.analyzers.evidence.editing import parsed_line
from tracelyze.analyzers.evidence.editing.parsed_line import name_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.parsed_line import ParsedLine
    from tracelyze.analyzers.recorded.run import Process


class AveragedParameters(NamedTuple):
    """The line that begins the loop, and the two models as it names them: the average, and what it is of."""

    place: Location
    kept: str
    current: str

    @property
    def said(self) -> str:
        return (
            f" Line {self.place.line} gives `{self.kept}` the averaged parameters of `{self.current}` and none of its "
            "buffers, which hold the statistics."
        )

    @property
    def fix(self) -> str:
        return f"Copy the buffers, too, behind the loop on line {self.place.line}."

    @property
    def code(self) -> str:
        return (
            f"with torch.no_grad():  # behind the loop on line {self.place.line}\n"
            f"    for kept, current in zip({self.kept}.buffers(), {self.current}.buffers()):\n"
            "        kept.copy_(current)"
        )


def of(process: Process, model: object) -> AveragedParameters | None:
    """The only line of the script that mixes weights into others, where it stands in such a loop for this model.
    None where the script asks for buffers anywhere: it may copy them now and then."""
    mixes = script_lines.only(process, "average")
    names = {str(one["called_as"] or "") for one in process.models.records() if one["model"] == model}
    if mixes is None or not names - {""} or any("buffers(" in text for text in recorded_text.everything(process)):
        return None
    lines = recorded_text.of_function(process, mixes)
    depth = recorded_text.indent_of(lines.get(mixes.line, ""))
    above = [at for at in sorted(lines) if at < mixes.line and lines[at].strip()]
    inside = [at for at in above if recorded_text.indent_of(lines[at]) < depth]
    at = mixes.line if "zip(" in mixes.source else inside[-1] if inside else mixes.line
    head = parsed_line.parse(lines.get(at, "").strip())
    pair = _pair(head) if head is not None else None
    if head is None or pair is None or _last(pair[0]) not in {_last(one) for one in names}:
        return None
    return AveragedParameters(Location(mixes.file, at, mixes.function, head.text), *pair)


def _pair(head: ParsedLine) -> tuple[str, str] | None:
    """`a` and `b` of `for one, other in zip(a.parameters(), b.parameters()):`."""
    loop = head.statement
    zipped = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(zipped, ast.Call) or name_of(zipped.func) != "zip" or len(zipped.args) != 2:
        return None
    found = [
        head.text_of(one.func.value)
        for one in zipped.args
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "parameters"
    ]
    return (found[0], found[1]) if len(found) == 2 else None


def _last(name: str) -> str:
    return name.rpartition(".")[2]
