"""A loop over the parameters of two models that makes one the average of the other, and leaves out their buffers."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine


class AveragedParameters(NamedTuple):
    """The line that begins the loop, and the two models as it names them: the average, and what it is of."""

    place: Location
    kept: str
    current: str
    diff: Diff | None = None

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


def of(process: Process, model: object, is_average: bool = False) -> AveragedParameters | None:
    """The only line of the script that mixes weights into others, where it stands in such a loop for this model, by a
    name of it; or by what the loop changes, where `is_average` is known of the model: it may be called by another name
    elsewhere. None where the script asks for buffers anywhere: it may copy them now and then."""
    mixes = script_lines.only(process, "average")
    names = {str(one["called_as"] or "") for one in process.models.records() if one["model"] == model}
    if (
        mixes is None
        or not (names - {""} or is_average)
        or any("buffers(" in text for text in recorded_text.everything(process))
    ):
        return None
    lines = recorded_text.of_function(process, mixes)
    depth = recorded_text.indent_of(lines.get(mixes.line, ""))
    above = [at for at in sorted(lines) if at < mixes.line and lines[at].strip()]
    inside = [at for at in above if recorded_text.indent_of(lines[at]) < depth]
    at = mixes.line if "zip(" in mixes.source else inside[-1] if inside else mixes.line
    head = parsed_line.parse(lines.get(at, "").strip())
    pair = _pair(head) if head is not None else None
    if head is None or pair is None:
        return None
    if _last(pair[0]) not in {_last(one) for one in names} and not (is_average and _changes_first(head, mixes)):
        return None
    place = mixes.at(at, head.text)
    return AveragedParameters(place, *pair, _copied(process, mixes, lines, at, pair))


def _copied(
    process: Process, mixes: Location, lines: Mapping[int, str], head: int, pair: tuple[str, str]
) -> Diff | None:
    """The edit that copies the buffers behind the loop that begins on line `head`, where the line that mixes is all
    that stands in it."""
    own = own_statement.at(process, mixes)
    if own is None or own.line != head + 1 or "\n" in own.text or not own.stands:
        return None
    depth = recorded_text.indent_of(lines[head])
    below = next((lines[at] for at in sorted(lines) if at > own.line and lines[at].strip()), "")
    if recorded_text.indent_of(below) > depth:
        return None
    indent = lines[head][: len(lines[head]) - len(lines[head].lstrip())]
    loop = [f"for kept, current in zip({pair[0]}.buffers(), {pair[1]}.buffers()):", "    kept.copy_(current)"]
    return Diff(mixes.file, own.line + 1, [], [indent + line for line in loop])


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


def _changes_first(head: ParsedLine, mixes: Location) -> bool:
    """Whether the line that mixes calls something in place on the first of the loop's two variables."""
    target = head.statement.target if isinstance(head.statement, ast.For) else None
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    changed = re.match(r"(?P<name>\w+)(?:\.data)?\.\w+_\(", mixes.source)
    return isinstance(first, ast.Name) and changed is not None and changed["name"] == first.id


def _last(name: str) -> str:
    return name.rpartition(".")[2]
