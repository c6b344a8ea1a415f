"""Lines that give a name a new value made of its old one, or put more into what it stands for, read off bytecode."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.growing.kept import GROWS
from tracelyze.collectors.program.lines.instructions import METHODS, by_line
from tracelyze.collectors.program.lines.loops.extents import loops

_GROWS: Final = GROWS | {"insert"}
_INDEX: Final = ("LOAD_FAST", "LOAD_CONST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "BINARY_SUBSCR", "BINARY_OP")
_NAMES: Final = ("_FAST", "_NAME", "_GLOBAL", "_DEREF")


def lines(code: CodeType, name: str, attribute: bool, within: int | None = None) -> list[int]:
    """The lines of a function that give `name` a new value made of its old one, or put more into what it stands for.
    `within`: a line that is under way; only lines of a loop around it count, where there is one."""
    known = code.co_names if attribute else (*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars)
    if name not in known or code.co_name == "__init__":
        return []
    found = sorted(set(_of(code, name, attribute)))
    around = [(first, last) for first, last in loops(code) if within is not None and first <= within <= last]
    if not around:
        return found
    return [line for line in found if any(first <= line <= last for first, last in around)]


def _of(code: CodeType, name: str, attribute: bool) -> Iterator[int]:
    """Line by line, and across the lines of a statement that stores the name."""
    taken: dict[int, int] = {}  # how often the name was taken, by line
    line, before, since, adds = code.co_firstlineno, False, 0, False
    for at, one in by_line(code):
        if one.opname in ("CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL"):
            continue
        adds = (adds and at == line) or one.opname == "BINARY_OP"
        line = at
        takes, stores = _does(one, name, attribute)
        if before and one.opname in METHODS and one.argval in _GROWS:
            yield line
        if stores and (since or taken.get(line)):
            yield line
        if one.opname == "STORE_SUBSCR" and taken.get(line) and (adds or taken[line] == 1):
            yield line
        since = 0 if stores or one.opname == "POP_TOP" else since + takes
        taken[line] = taken.get(line, 0) + takes
        before = bool(takes) or (before and one.opname.startswith(_INDEX))


def _does(one: dis.Instruction, name: str, attribute: bool) -> tuple[int, bool]:
    """How often an instruction takes the name, and whether it stores it. Python 3.13 does two of these at a time."""
    if attribute:
        return int(one.opname in METHODS and one.argval == name), one.opname == "STORE_ATTR" and one.argval == name
    if one.argval != name or not any(kind in one.opname for kind in _NAMES):
        return 0, False
    return int(one.opname.startswith("LOAD_")), one.opname.startswith("STORE_")
