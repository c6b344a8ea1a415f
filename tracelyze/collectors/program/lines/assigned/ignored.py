"""Lines that give targets the number which losses ignore, -100, read off bytecode as in `script_text`."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.named_calls import LONGEST

IGNORED: Final = -100


def lines(code: CodeType) -> list[int]:
    """Lines of a function that hold the number."""
    if len(code.co_code) > LONGEST or not _holds(code.co_consts):
        return []
    found: dict[int, None] = {}
    line = code.co_firstlineno
    for one in dis.get_instructions(code):
        line = (one.positions.lineno if one.positions is not None else None) or line
        if one.opname.startswith("LOAD_CONST") and _holds((one.argval,)):
            found[line] = None
    return list(found)


def _holds(constants: tuple[object, ...]) -> bool:
    return any(type(one) is int and one == IGNORED for one in constants)
