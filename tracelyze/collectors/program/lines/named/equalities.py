"""Lines that ask whether two things are equal: with an end symbol, by its name, or with anything."""

from __future__ import annotations

import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import TAKES, by_line

END: Final = re.compile(  # what an end symbol is called
    r"^_?(?:(?:eos|eot|im_end|end_of_(?:text|turn|sequence|sentence))(?:_?(?:id|idx|index|token|tok|symbol)){0,2}"
    r"|(?:end|stop)_?(?:id|idx|token|tok|symbol)(?:_?id)?)$",
    re.IGNORECASE,
)
_END_CONSTANTS: Final = frozenset({"END", "STOP"})  # in small letters they are any place
_COMPARES: Final = ("==", "!=", "bool(==)", "bool(!=)")  # Python 3.13 writes down where the result is made a bool


def ends(code: CodeType) -> list[int]:
    """Lines of a function that compare something with what is named as an end symbol, by ==, != or `eq`."""
    known = (*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars)
    names = {name for name in known if name in _END_CONSTANTS or END.match(name)}
    if not names:
        return []
    found: dict[int, None] = {}
    before, method = "", False
    for line, one in by_line(code):
        compares = one.opname == "COMPARE_OP" and one.argrepr in _COMPARES
        if before in names and (compares or (method and "CALL" in one.opname)):
            found[line] = None
        if "CALL" in one.opname:
            method = False
        elif one.opname in TAKES:
            method = method or one.argval in ("eq", "ne")
        before = str(one.argval) if one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST" else ""
    return list(found)


def equalities(code: CodeType) -> list[int]:
    """Lines of a function that ask whether two things are equal, or one is in the other."""
    found: dict[int, None] = {}
    for line, one in by_line(code):
        if one.opname == "CONTAINS_OP" or (one.opname == "COMPARE_OP" and one.argrepr in _COMPARES):
            found[line] = None
    return list(found)
