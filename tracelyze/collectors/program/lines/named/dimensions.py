"""Lines of an optimizer's own step that decide by the number of dimensions of a tensor, read off its bytecode."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import TAKES, by_line

_NUMBERS: Final = frozenset({"ndim", "dim"})  # len(p.shape) is the same


def decided(code: CodeType) -> list[int]:
    """Lines that compare such a number and go on by it: `if p.ndim != 2: continue`, `if len(p.shape) == 2:`."""
    taken: dict[int, set[str]] = {}
    found: set[int] = set()
    compared = 0  # the latest line that compares
    for line, one in by_line(code):
        if one.opname in TAKES:
            taken.setdefault(line, set()).add(str(one.argval))
        elif one.opname == "COMPARE_OP":
            compared = line
        elif "JUMP" in one.opname and "_IF_" in one.opname and compared == line:
            names = taken.get(line, set())
            found |= {line} if names & _NUMBERS or {"len", "shape"} <= names else set()
    return sorted(found)
