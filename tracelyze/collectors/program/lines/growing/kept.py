"""Lines that put something into what an object holds, of the methods with which a data set reads a sample."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import METHODS, by_line

GROWS: Final = frozenset({"append", "appendleft", "extend", "add", "update", "setdefault"})


def kept(code: CodeType) -> list[int]:
    """Lines of a method that put something into a list, set or dictionary of its object."""
    found: set[int] = set()
    owner, holder = "", False  # `holder`: an attribute of the object was just taken
    for line, one in by_line(code):
        grows = one.opname in METHODS and one.argval in GROWS and holder
        if grows or (one.opname == "STORE_SUBSCR" and holder):
            found.add(line)
        if one.opname in METHODS:
            holder = owner == "self"
        elif one.opname == "BINARY_SUBSCR":  # it was read
            holder = False
        owner = str(one.argval)
    return sorted(found)
