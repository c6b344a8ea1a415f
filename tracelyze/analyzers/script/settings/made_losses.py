"""The line of the script that makes the loss which another line calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

OVER_CLASSES: Final = ("CrossEntropyLoss", "NLLLoss")
_MAKES: Final = r"\b(?P<name>\w+)\s*=\s*[\w.]*\b(?:{})\("


def made(process: Process, loss: Location | None, kinds: tuple[str, ...]) -> tuple[Location, OwnStatement] | None:
    """The only line of the file that makes a loss of these kinds, if the line of the loss calls what it assigns."""
    makes = re.compile(_MAKES.format("|".join(kinds)))
    places = [one for one in recorded_text.matching(process, makes) if loss is not None and one.file == loss.file]
    name = makes.search(places[0].source) if len(places) == 1 else None
    if loss is None or name is None or re.search(rf"\b{name['name']}\(", loss.source) is None:
        return None
    own = own_statement.at(process, places[0])
    return None if own is None or own.only_call(*kinds) is None else (places[0], own)
