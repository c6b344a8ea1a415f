"""A layer that is made anew after a line tied its weight to another one's, and that an optimizer leaves out as if the
two were one still."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_FUNCTION: Final = re.compile(r"\s*(?:async )?def \w+\(")
_FIX: Final = (
    "Tie them again below line {anew}. If both are to train apart instead, take out line {passed}, with the continue "
    "below it, so that a group takes {name} in."
)


class BrokenTie(NamedTuple):
    """The line that makes the layer anew, what is said of it, what to do, and the statement that tied the two."""

    place: Location
    said: str
    fix: str
    code: str


def of(process: Process, name: str, passed: int) -> BrokenTie | None:
    """The only line that makes the layer of this tensor anew, in a function below the only line that ties the tensor to
    another one. `passed`: the line that passes over it by its name."""
    layer, _, tensor = name.rpartition(".")
    layer, tensor = re.escape(layer.rpartition(".")[2]), re.escape(tensor)
    if not layer:
        return None
    ties = recorded_text.matching(
        process, re.compile(rf"^\s*[\w.]+\.{layer}\.{tensor}\s*=\s*[\w.]+\.{tensor}\s*(?:#|$)")
    )
    made = recorded_text.matching(process, re.compile(rf"^\s*[\w.]+\.{layer}\s*=(?!=)"))
    if len(ties) != 1 or any(one.file != ties[0].file for one in made):
        return None
    (tie,) = ties
    anew = [one for one in made if one.line > tie.line]
    known = recorded_text.of_file(process, tie.file)
    if len(anew) != 1 or len(made) == 1 or not any(map(_FUNCTION.match, _between(known, tie.line, anew[0].line))):
        return None
    statement = code_of(tie.source).strip()
    held, _, other = (part.strip() for part in statement.partition("="))
    return BrokenTie(
        anew[0],
        f"Line {tie.line} makes {held} and {other} one tensor, but line {anew[0].line} makes the layer anew, and "
        "nothing ties the two again.",
        _FIX.format(anew=anew[0].line, passed=passed, name=name),
        f"{statement}  # below line {anew[0].line}",
    )


def _between(lines: dict[int, str], first: int, last: int) -> list[str]:
    return [text for at, text in lines.items() if first < at < last]
