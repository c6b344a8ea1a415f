"""Lines of the script that take a gradient by `autograd.grad` without a graph of it: what is made of that gradient is a
constant for the backward that follows. Read off bytecode, as in `named`."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import FUNCTIONS, METHODS, by_line, names_stored
from tracelyze.collectors.program.lines.settings.named_arguments import named_arguments

_ENDS: Final = ("POP_TOP", "RETURN_VALUE", "UNPACK_SEQUENCE", "STORE_SUBSCR")


def without_graph(code: CodeType) -> list[int]:
    """Lines at which `autograd.grad(...)`, or `grad(...)`, is called in a statement that never says create_graph."""
    if "grad" not in code.co_names:
        return []
    found: dict[int, None] = {}
    taken, before = 0, ""
    for line, one in by_line(code):
        if one.opname in FUNCTIONS and one.argval == "grad" and (before == "autograd" or one.opname not in METHODS):
            taken = line
        elif taken and ("create_graph" in named_arguments(code, one) or one.opname == "CALL_FUNCTION_EX"):
            taken = 0
        elif taken and (one.opname in _ENDS or names_stored(one)):
            found[taken] = None
            taken = 0
        before = str(one.argval) if one.opname in FUNCTIONS else ""
    return list(found)
