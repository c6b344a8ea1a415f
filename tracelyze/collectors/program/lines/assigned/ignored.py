"""Lines that give targets the number which losses ignore, -100, read off bytecode as in `named`."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import by_line

IGNORED: Final = -100


def lines(code: CodeType) -> list[int]:
    """Lines of a function that hold the number."""
    if not _holds(code.co_consts):
        return []
    found: dict[int, None] = {}
    for line, one in by_line(code):
        if one.opname == "LOAD_CONST" and _holds((one.argval,)):
            found[line] = None
    return list(found)


def _holds(constants: tuple[object, ...]) -> bool:
    return any(type(one) is int and one == IGNORED for one in constants)
