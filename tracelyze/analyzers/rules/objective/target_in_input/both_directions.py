"""A recurrent layer that also reads from the right: what stands behind a position is known to it before it answers."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

KINDS: Final = ("LSTM", "GRU", "RNN")
FIX: Final = (
    "Let it run in one direction: without bidirectional=True. What comes behind it is then given hidden_size features, "
    "half as many as now."
)


@dataclass(frozen=True)
class BothDirections:
    """The layer, by its class, the line that makes it, and that statement with one direction."""

    kind: str
    made: Location
    example: str

    @property
    def remedy(self) -> Remedy:
        """What to change. The size of the next layer has to change with it, so that no edit of one line is enough."""
        return Remedy(FIX, self.example, self.made)


def of(process: Process) -> BothDirections | None:
    """The only line that makes a recurrent layer which runs in both directions; None where there are several."""
    found: dict[tuple[str, int], BothDirections] = {}
    for row in process.tables["modules"].shared_records():
        made = process.site(row["made_at"]) if row["kind"] in KINDS else None
        own = own_statement.at(process, made)
        call = own.only_call(str(row["kind"])) if own is not None else None
        if own is None or call is None or made is None:
            continue
        given = [one.value for one in call.keywords if one.arg == "bidirectional"]
        if given and not (isinstance(given[0], ast.Constant) and not given[0].value):
            example = own.dedented(own.parsed.with_parts({given[0]: "False"}))
            found[made.file_line] = BothDirections(str(row["kind"]), made, example)
    return next(iter(found.values())) if len(found) == 1 else None
