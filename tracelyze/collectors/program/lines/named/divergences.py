"""Lines that sum the KL divergence of a Gaussian code, as the loss of a variational autoencoder has it."""

from __future__ import annotations

import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import TAKES, by_line

_EXPONENTIALS: Final = frozenset({"exp", "expm1"})
_SPREAD: Final = re.compile(r"log_?(?:var|sigma|std|scale)|(?:^|_)lv(?:$|_)", re.IGNORECASE)


def divergences(code: CodeType) -> list[int]:
    """Lines that take an exponential and a sum, and name the logarithm of a variance."""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars}
    if "sum" not in names or not names & _EXPONENTIALS or not any(_SPREAD.search(name) for name in names):
        return []
    taken: dict[int, set[str]] = {}
    for line, one in by_line(code):
        if type(one.argval) is str and (one.opname in TAKES or one.opname.startswith("LOAD_FAST")):
            taken.setdefault(line, set()).add(one.argval)
    return [
        line
        for line, found in taken.items()
        if "sum" in found and found & _EXPONENTIALS and any(_SPREAD.search(name) for name in found)
    ]
