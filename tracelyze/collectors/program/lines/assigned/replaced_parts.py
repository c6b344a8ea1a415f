"""Lines that give an object another part: `model.head = nn.Linear(64, 5)`, outside of the object's own methods."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import by_line

_ITSELF: Final = ("self", "cls")


def lines(code: CodeType) -> list[int]:
    """Lines of a function that set an attribute of something to what a call of a class makes, by its capital."""
    if not any(name[:1].isupper() for name in code.co_names):
        return []
    found: dict[int, None] = {}
    made, called, before = 0, 0, ""
    for line, one in by_line(code):
        taken = str(one.argval)
        if one.opname == "STORE_ATTR" and made == called == line and before and before not in _ITSELF:
            found[line] = None
        elif one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST":
            made = line if taken[:1].isupper() else made
        elif one.opname.startswith("CALL"):
            called = line
        before = taken if one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST" else ""
    return list(found)
