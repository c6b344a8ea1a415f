"""The line of the script that makes the loss which another line calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.own_statement import OwnStatement
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

OVER_CLASSES: Final = ("CrossEntropyLoss", "NLLLoss")
_MAKES: Final = re.compile(rf"\b(?P<name>\w+)\s*=\s*[\w.]*\b(?:{'|'.join(OVER_CLASSES)})\(")


def over_classes(process: Process, loss: Location | None) -> tuple[Location, OwnStatement] | None:
    """The only line of the file that makes a loss over classes, if the line of the loss calls what it assigns."""
    places = [one for one in recorded_text.matching(process, _MAKES) if loss is not None and one.file == loss.file]
    name = _MAKES.search(places[0].source) if len(places) == 1 else None
    if loss is None or name is None or re.search(rf"\b{name['name']}\(", loss.source) is None:
        return None
    own = own_statement.at(process, places[0])
    return None if own is None or own.only_call(*OVER_CLASSES) is None else (places[0], own)
