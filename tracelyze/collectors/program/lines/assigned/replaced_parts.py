"""Lines that give an object another part: `model.head = nn.Linear(64, 5)`, outside of the object's own methods."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import name_taken
from tracelyze.collectors.program.lines.named_calls import LONGEST

_ITSELF: Final = ("self", "cls")


def lines(code: CodeType) -> list[int]:
    """Lines of a function that set an attribute of something to what a call of a class makes, by its capital."""
    if len(code.co_code) > LONGEST or not any(name[:1].isupper() for name in code.co_names):
        return []
    found: dict[int, None] = {}
    line, made, called, before = code.co_firstlineno, 0, 0, ""
    for one in dis.get_instructions(code):
        line = (one.positions.lineno if one.positions is not None else None) or line
        taken = name_taken(one)
        if one.opname == "STORE_ATTR" and made == called == line and before and before not in _ITSELF:
            found[line] = None
        elif one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST":
            made = line if taken[:1].isupper() else made
        elif one.opname.startswith("CALL"):
            called = line
        before = taken if one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST" else ""
    return list(found)
