"""One answer for each prompt that is drawn once and then repeated for the group: its rewards cannot differ."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.analyzers.script.names import names_in
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_ANSWERS: Final = r"\w*(?:action|answer|choice|completion|generated|output|repl(?:y|ies)|response|sequence|token)\w*"
_DRAWN: Final = re.compile(rf"^(?P<name>{_ANSWERS})\s*=\s*(?:.*\.)?(?:sample|generate)(?:_\w+)?\(")
_REPEATS: Final = ("repeat_interleave", "repeat", "expand", "tile")


def of(process: Process) -> Remedy | None:
    """The line that repeats what one above it draws, under its name, in the function that makes the advantages; None
    where not exactly one line draws and one repeats."""
    found = {}
    for place in process.locations("advantage"):
        lines = recorded_text.of_function(process, place)
        texts = {at: code_of(line).strip() for at, line in lines.items()}
        drawn = [(at, one["name"]) for at, text in texts.items() if (one := _DRAWN.match(text))]
        for at, name in drawn:
            repeats = [below for below, text in texts.items() if at < below and _repeats(text, name)]
            if len(drawn) == len(repeats) == 1 and repeats[0] <= place.line:
                here = replace(place, line=repeats[0], source=lines[repeats[0]].strip())
                found[here.file_line] = (here, at, name, texts[at])
    if len(found) != 1:
        return None
    ((place, at, name, text),) = found.values()
    given = _given(text)
    before = f"{given} = {given}.repeat_interleave(group, 0)  # above line {at}\n" if given else ""
    return Remedy(
        f"Repeat the prompts above line {at}, so that it draws an answer for each of them, and repeat nothing below "
        f"it: line {place.line} goes.",
        f"{before}{text}",
        place,
        why=f" Line {at} draws `{name}`, and line {place.line} repeats what was drawn: a group holds one answer many "
        "times over, and so one reward.",
    )


def _repeats(text: str, name: str) -> bool:
    """Whether a statement gives a name anew what it held, repeated."""
    line = parsed_line.parse(text)
    statement = line.statement if line is not None else None
    if line is None or not isinstance(statement, ast.Assign) or not line.calls(*_REPEATS):
        return False
    held = {ast.unparse(one) for target in statement.targets for one in ast.walk(target)}
    used = names_in(statement.value)
    return name in held and name in used


def _given(text: str) -> str:
    """What the call that draws is given first, where that is a name; else empty."""
    line = parsed_line.parse(text)
    value = getattr(line.statement, "value", None) if line is not None else None
    first = value.args[0] if isinstance(value, ast.Call) and value.args else None
    return first.id if isinstance(first, ast.Name) else ""
