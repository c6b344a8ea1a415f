"""Lines that slice: those that shift by one position, and those that cut to a length. Read off bytecode, as in
:mod:`named`.
"""

from __future__ import annotations

import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.assigned.ignored import IGNORED
from tracelyze.collectors.program.lines.instructions import TAKES, by_line, names_of

_SLICES: Final = ("BUILD_SLICE", "BINARY_SLICE")
_ALL_BUT_THE_FIRST: Final = ["1", "None"]  # the bounds of a slice, as its constants are loaded
_LABELS: Final = re.compile(r"\w*(?:labels?|targets?|tgts?|ignore\w*)", re.IGNORECASE)


def shifts(code: CodeType) -> list[int]:
    """Lines of a function that take all but the first of something, `x[1:]`, slice by a sum with 1, or roll: what
    shifts by one position does so."""
    found: dict[int, None] = {}
    before = ["", ""]
    added = 0  # the latest line that adds 1 to something
    for line, one in by_line(code):
        constant = one.opname == "LOAD_CONST"
        built = one.opname in _SLICES and (before == _ALL_BUT_THE_FIRST or added == line)
        parts = names_of(one)  # Python 3.14 has slices of constants
        folded = constant and any(type(part) is slice and (part.start, part.stop) == (1, None) for part in parts)
        if built or folded or (one.opname in TAKES and one.argval == "roll"):
            found[line] = None
        if one.opname == "BINARY_OP" and one.argrepr == "+" and before[1] == "1":
            added = line
        if one.opname != "CACHE":
            before = [before[1], repr(one.argval) if constant else ""]
    return list(found)


def lengths(code: CodeType) -> list[int]:
    """Lines that keep of something what lies before a length with a name, `ids[:max_length]`, in a function that makes
    labels."""
    constants = [part for one in code.co_consts for part in (one if type(one) is tuple else (one,))]
    names = [*code.co_names, *code.co_varnames, *(part for part in constants if type(part) is str)]
    labels = IGNORED in constants or any(_LABELS.fullmatch(name) for name in names)
    found: dict[int, None] = {}
    if not labels:
        return []
    begun, named = False, False
    for line, one in by_line(code):
        if one.opname in _SLICES and begun and named:
            found[line] = None
        if one.opname == "LOAD_CONST":
            begun, named = one.opname == "LOAD_CONST" and one.argval is None, False
        elif one.opname.startswith("LOAD_"):
            named = begun
        elif one.opname != "CACHE":
            begun = False
    return list(found)
