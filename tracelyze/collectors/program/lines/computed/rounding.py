"""Lines of a function, and of what is defined in it, that round or compare what it computes, read off bytecode."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines import script_text
from tracelyze.collectors.program.lines.named_calls import FUNCTIONS, LONGEST, with_inner

_ROUNDS: Final = frozenset({"round", "int", "floor", "ceil", "trunc"})


def rounds(code: CodeType) -> list[int]:
    """Lines that divide without remainder, or call what makes a whole number."""
    found: set[int] = set()
    for part in with_inner(code):
        if len(part.co_code) > LONGEST:
            continue
        line = part.co_firstlineno
        for one in dis.get_instructions(part):
            line = (one.positions.lineno if one.positions is not None else None) or line
            divides = one.opname == "BINARY_OP" and one.argrepr in ("//", "//=")
            if divides or (one.opname in FUNCTIONS and one.argval in _ROUNDS):
                found.add(line)
    return sorted(found)


def compares(code: CodeType) -> list[int]:
    """Lines that ask whether two things are equal, or one is in the other."""
    return sorted({line for part in with_inner(code) for line in script_text.equalities(part)})
