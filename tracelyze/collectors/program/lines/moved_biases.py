"""Lines that move a bias by hand, by a sum or a difference: what balances the experts of a mixture without a loss."""

from __future__ import annotations

import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import METHODS, by_line, names_of

BIAS: Final = re.compile(r"bias", re.IGNORECASE)
_SUMS: Final = ("+", "-", "+=", "-=")
_IN_PLACE: Final = ("add_", "sub_")


def moves(code: CodeType) -> list[int]:
    """Lines of a function that give a bias a sum with itself, or add to it in place."""
    names = {name for name in (*code.co_names, *code.co_varnames) if BIAS.search(name)}
    if not names:
        return []
    found: dict[int, None] = {}
    before, taken = "", set[tuple[int, str]]()
    for line, one in by_line(code):
        named = {str(name) for name in names_of(one)} & names
        sums = one.opname.startswith("STORE") and before in _SUMS and any((line, name) in taken for name in named)
        if sums or (one.opname in METHODS and one.argval in _IN_PLACE and any(at == line for at, _ in taken)):
            found[line] = None
        elif one.opname.startswith("LOAD"):
            taken |= {(line, name) for name in named}
        if one.opname not in ("SWAP", "COPY", "LOAD_FAST", "ROT_TWO"):
            before = one.argrepr if one.opname == "BINARY_OP" else ""
    return list(found)
