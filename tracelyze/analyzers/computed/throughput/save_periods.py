"""The line that says after how many steps a loop saves: a condition on the step, or the constant in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_EVERY: Final = re.compile(r"if\b.*%\s*(?P<every>[\w.]+)\s*==\s*0\b.*:")


def line(process: Process, saves: Location | None, every: int) -> Location | None:
    """That line, where it says `every` steps; `saves`: the line that writes the file, in the function that trains or in
    the only one that this calls by its name. None where that is not known."""
    trains = process.longest.backward_location if process.optimizations else None
    if saves is None or trains is None or not saves.function.isidentifier():
        return None
    lines = recorded_text.of_function(process, trains)
    call = re.compile(rf"(?<!def )(?<!\w){saves.function}\(")
    at = [one for one, text in lines.items() if call.search(text)]
    at = [saves.line] if saves.file_function == trains.file_function else at
    if len(at) != 1 or at[0] not in lines:
        return None
    depth = recorded_text.indent_of(lines[at[0]])
    above = [one for one, text in lines.items() if one < at[0] and text.strip()]
    head = max((one for one in above if recorded_text.indent_of(lines[one]) < depth), default=at[0])
    condition = _EVERY.match(lines[head].strip())
    if condition is None:
        return None
    name = condition["every"].rpartition(".")[2]
    if name.isdigit():
        return trains.at(head, lines[head]) if int(name) == every else None
    assigned = rf"^\s*(?:self\.)?{name}\s*(?::\s*int\s*)?=\s*{every}\b"
    option = rf"--{name.replace('_', '[-_]')}\b.*\bdefault\s*=\s*{every}\b"
    found = recorded_text.matching(process, re.compile(f"{assigned}|{option}"))
    return found[0] if len(found) == 1 else None
