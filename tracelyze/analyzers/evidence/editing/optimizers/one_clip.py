"""The one clip of a step that accumulates gradients: the script's own statement, once they are complete."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import edits
from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_ACCUMULATES: Final = re.compile(r"\bwith (?P<name>[A-Za-z_][\w.]*)\.accumulate\(")


def once_complete(process: Process, place: Location | None) -> Diff | None:
    """The line that clips under a condition, where a block of Accelerate says when the gradients are complete; not
    where its result has a name, for which lines below may ask at each micro-batch."""
    own = own_statement.at(process, place)
    if own is None or place is None or isinstance(own.parsed.statement, ast.Assign | ast.AnnAssign):
        return None
    above = [line for number, line in edits.recorded_lines(process, place).items() if number < own.line]
    names = {found["name"] for line in above if (found := _ACCUMULATES.search(line))}
    head = f"if {names.pop()}.sync_gradients:  # once the gradients of a step are complete" if len(names) == 1 else ""
    return own.under(head) if head else None
