"""The one clip of a step that accumulates gradients: the script's own statement, once they are complete."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_SHOWN: Final = 3
_ACCUMULATES: Final = re.compile(r"\bwith (?P<name>[A-Za-z_][\w.]*)\.accumulate\(")


def once_complete(process: Process, place: Location | None) -> Diff | None:
    """The line that clips under a condition, where a block of Accelerate says when the gradients are complete; not
    where its result has a name, for which lines below may ask at each micro-batch."""
    own = own_statement.at(process, place)
    if own is None or place is None or isinstance(own.parsed.statement, ast.Assign | ast.AnnAssign):
        return None
    above = [line for number, line in recorded_text.around(process, place).items() if number < own.line]
    names = {found["name"] for line in above if (found := _ACCUMULATES.search(line))}
    head = f"if {names.pop()}.sync_gradients:  # once the gradients of a step are complete" if len(names) == 1 else ""
    return own.under(head) if head else None


def read_elsewhere(process: Process, place: Location | None) -> str:
    """A sentence on the other lines of the function that read what the clip returns: moved out of the loop over
    micro-batches alone, it would leave them without a value, or with that of the step before. Empty where none does."""
    own = own_statement.at(process, place)
    made = own.parsed.statement if own is not None else None
    if own is None or place is None or not isinstance(made, ast.Assign):
        return ""
    names = [one.id for one in ast.walk(made.targets[0]) if isinstance(one, ast.Name)]
    within = range(own.line, own.line + own.text.count("\n") + 1)
    lines = {at: text for at, text in recorded_text.of_function(process, place).items() if at not in within}
    readers = {name: [at for at, text in lines.items() if _reads(text, name)] for name in names}
    told = [(name, sorted(at)) for name, at in readers.items() if at]
    if not told:
        return ""
    name, numbers = told[0]
    which = f"Line{'s' * (len(numbers) > 1)} {listed(map(str, numbers), _SHOWN)} read{'s' * (len(numbers) == 1)}"
    return f" {which} `{name}`: below the clip and under the same condition, or it has no value there."


def _reads(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\b(?!\s*=(?!=))", code_of(text)) is not None
