"""Lines that divide arrays of NumPy or pandas, take their logarithm or root, or make floats of them, read off
bytecode: what data are prepared by, before any tensor is there."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import FUNCTIONS, by_line

_OF_NUMPY: Final = frozenset({
    "log", "log2", "log10", "log1p", "sqrt", "divide", "true_divide", "reciprocal", "power",
})  # fmt: skip
_OF_PANDAS: Final = frozenset({"pct_change", "zscore"})  # of a table, whatever it is called; of scipy.stats
_FLOATS: Final = frozenset({"float32", "float64", "float_", "single", "astype"})


def singular(code: CodeType) -> list[int]:
    """Lines that call what is infinite, or no number, for some numbers."""
    return _lines(code, _OF_NUMPY, _OF_PANDAS)


def casts(code: CodeType) -> list[int]:
    """Lines that take a type of floats from NumPy, or call `astype`."""
    return _lines(code, _FLOATS, frozenset({"astype"}))


def _lines(code: CodeType, of_numpy: frozenset[str], of_any: frozenset[str]) -> list[int]:
    if (of_numpy | of_any).isdisjoint(code.co_names):
        return []
    found: set[int] = set()
    owner = ""
    for line, one in by_line(code):
        if one.opname in FUNCTIONS:
            of_it = owner in ("np", "numpy") and one.argval in of_numpy
            if of_it or one.argval in of_any:
                found.add(line)
        owner = str(one.argval) if one.opname in FUNCTIONS else owner if one.opname in ("PUSH_NULL", "CACHE") else ""
    return sorted(found)
