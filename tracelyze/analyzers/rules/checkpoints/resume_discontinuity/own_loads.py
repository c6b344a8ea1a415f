"""Examples about files of weights, with the script's own line that reads one and its variable of what it read."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_READ: Final = "checkpoint = torch.load(path)"


def in_example(code: str, process: Process, read: Location | None) -> str:
    """The example with the line that reads the file as it stands, where that keeps what it read under a name."""
    own = own_statement.at(process, read)
    statement = own.parsed.statement if own is not None else None
    if own is None or not isinstance(statement, ast.Assign) or not own.parsed.calls("load"):
        return code
    target = statement.targets[0]
    if not isinstance(target, ast.Name | ast.Attribute) or not isinstance(statement.value, ast.Call):
        return code
    if statement.value not in own.parsed.calls("load"):
        return code  # a part of the file, or what something else makes of it
    name = own.parsed.text_of(target)
    return re.sub(r"\bcheckpoint\[", f"{name}[", code.replace(_READ, own.dedented(own.text)))
