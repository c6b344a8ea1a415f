"""Lines that move a bias by hand, by a sum or a difference: what balances the experts of a mixture without a loss."""

from __future__ import annotations

import dis
import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.named_calls import LONGEST, METHODS

BIAS: Final = re.compile(r"bias", re.IGNORECASE)
_SUMS: Final = ("+", "-", "+=", "-=")
_IN_PLACE: Final = ("add_", "sub_")


def moves(code: CodeType) -> list[int]:
    """Lines of a function that give a bias a sum with itself, or add to it in place."""
    names = {name for name in (*code.co_names, *code.co_varnames) if BIAS.search(name)}
    if not names or len(code.co_code) > LONGEST:
        return []
    found: dict[int, None] = {}
    line, before, taken = code.co_firstlineno, "", set[tuple[int, str]]()
    for one in dis.get_instructions(code):
        line = (one.positions.lineno if one.positions is not None else None) or line
        named = {str(name) for name in (one.argval if type(one.argval) is tuple else (one.argval,))} & names
        sums = one.opname.startswith("STORE") and before in _SUMS and any((line, name) in taken for name in named)
        if sums or (one.opname in METHODS and one.argval in _IN_PLACE and any(at == line for at, _ in taken)):
            found[line] = None
        elif one.opname.startswith("LOAD"):
            taken |= {(line, name) for name in named}
        if one.opname not in ("SWAP", "COPY", "LOAD_FAST", "LOAD_FAST_BORROW", "ROT_TWO"):
            before = one.argrepr if one.opname == "BINARY_OP" else ""
    return list(found)
