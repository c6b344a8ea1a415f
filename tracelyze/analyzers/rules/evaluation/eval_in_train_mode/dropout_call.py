"""Functional dropout that does not follow the mode of the model: which line calls it, and how it would."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import edits, line_edits, recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

FIX: Final = "Functional dropout does not know the mode of the model: hand it over."
EXAMPLE: Final = "x = F.dropout(x, p=0.1, training=self.training)  # dropout_p=0.1 if self.training else 0.0"
_TRAINING: Final = 2  # the place of `training` among the arguments of torch's functions
_CALLED: Final = re.compile(r"\bself\.(\w+)\(")
_SHOWN: Final = 4  # lines that a sentence can bear


def lines(process: Process) -> list[Location]:
    """The lines that drop values in each mode; none where they stand in several files."""
    found = script_lines.always_dropping(process)
    return found if len({one.file for one in found}) == 1 else []


def said(found: list[Location]) -> str:
    """A sentence that names the lines, empty where there is none."""
    if not found:
        return ""
    numbers = [str(one.line) for one in found[:_SHOWN]]
    more = " and others" if len(found) > _SHOWN else ""
    if len(found) == 1:
        return f" Line {numbers[0]} drops in each mode."
    named = f"{', '.join(numbers[:-1])} and {numbers[-1]}" if not more else ", ".join(numbers) + more
    return f" Lines {named} drop in each mode."


def example(process: Process, found: list[Location]) -> str:
    """The mode handed over; where a plain function drops, which knows no model, by an argument of its own."""
    place = found[0] if found else None
    edit = by_mode(process, found[:1])
    if edit is not None:
        return textwrap.dedent("\n".join(edit.added))
    own = own_statement.at(process, place)
    if place is None or own is None or not own.is_whole:
        return EXAMPLE
    above = "\n".join(recorded_text.of_function(process, place).values())
    head = re.search(rf"^def {re.escape(place.function)}\((?!self|cls)[^=*()]+(?=\)[^()]*:$)", above, re.MULTILINE)
    call = own.only_call(*line_edits.DROPOUTS)
    changed = call and own.parsed.with_argument(call, "training", "training", _TRAINING)
    if head is None or not changed:
        return EXAMPLE
    return f"{head[0]}, training):  # forward hands it self.training\n    {own.dedented(changed)}"


def by_mode(process: Process, found: list[Location]) -> Diff | None:
    """The lines with the mode handed over, in a method of a module, which knows it: all of them where they stand
    together, else the first."""
    inside = [place for place in found if _is_of_a_module(process, place)]
    changed = [line_edits.dropping_by_mode(process, place) for place in inside]
    known = [one for one in changed if one is not None]
    whole = edits.together(process, inside[0], known) if len(known) == len(found) > 0 else None
    return whole or (changed[0] if changed and inside[0] == found[0] else None)


def _is_of_a_module(process: Process, place: Location) -> bool:
    """Whether a line stands in a forward, or in a method that calls a part of its object: `self.query(x)`, where the
    model has a part of that name, made as `self.query`. What holds a whole model is no module for that."""
    if place.function.rpartition(".")[2] == "forward":
        return True
    called = set(_CALLED.findall("\n".join(recorded_text.of_function(process, place).values())))
    for row in process.tables["modules"].records():
        name, made = str(row["module"] or "").rpartition(".")[2], process.site(row["made_at"])
        assigned = made is not None and made.file == place.file and made.source.partition("=")[0]
        if name in called and assigned and f"self.{name}" in assigned.replace(" ", "").split(","):
            return True
    return False
