"""Lines of a function, and of what is defined in it, that round or compare what it computes, or look for a pattern in
it, read off bytecode."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import FUNCTIONS, by_line
from tracelyze.collectors.program.lines.named import equalities
from tracelyze.collectors.program.lines.named_calls import with_inner

_ROUNDS: Final = frozenset({"round", "int", "floor", "ceil", "trunc"})
_SEARCHES: Final = frozenset({"search", "match", "fullmatch", "findall", "finditer"})


def rounds(code: CodeType) -> list[int]:
    """Lines that divide without remainder, or call what makes a whole number."""
    found: set[int] = set()
    for part in with_inner(code):
        for line, one in by_line(part):
            divides = one.opname == "BINARY_OP" and one.argrepr in ("//", "//=")
            if divides or (one.opname in FUNCTIONS and one.argval in _ROUNDS):
                found.add(line)
    return sorted(found)


def compares(code: CodeType) -> list[int]:
    """Lines that ask whether two things are equal, or one is in the other."""
    return sorted({line for part in with_inner(code) for line in equalities.equalities(part)})


def searches(code: CodeType) -> list[int]:
    """Lines that look for a pattern in a text, with a method of a pattern or a function of `re`."""
    known = [(line, one) for part in with_inner(code) for line, one in by_line(part)]
    return sorted({line for line, one in known if one.opname in FUNCTIONS and one.argval in _SEARCHES})
