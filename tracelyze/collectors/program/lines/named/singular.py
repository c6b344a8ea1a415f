"""Lines that can make NaN or Inf of finite numbers, or of their gradients: by a division, a root, a logarithm."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import TAKES, by_line
from tracelyze.collectors.program.lines.named.roles import NO_TENSORS

SINGULAR: Final = frozenset(  # by what a gradient may be lost at: signals/gradients/singular_operations.py
    {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "norm", "vector_norm", "std", "cdist", "reciprocal", "logit"}
) | {"acos", "asin", "arccos", "arcsin", "acosh", "atanh", "erfinv", "pow", "var", "std_mean", "var_mean"}


def singular(code: CodeType) -> list[int]:
    """Lines of a function that divide, raise to a power that need not be whole, or call what has no finite value or
    derivative somewhere, by its name."""
    found: set[int] = set()
    owner, constant, whole = "", False, False
    for line, one in by_line(code):
        operator = one.argrepr if one.opname == "BINARY_OP" else ""
        divides = (operator in ("/", "/=") and not constant) or (operator in ("**", "**=") and not whole)
        if divides or (one.opname in TAKES and one.argval in SINGULAR and owner not in NO_TENSORS):
            found.add(line)
        if one.opname not in ("PUSH_NULL", "PRECALL", "CACHE"):
            owner, constant = str(one.argval), one.opname == "LOAD_CONST"
            whole = constant and isinstance(one.argval, int | float) and float(one.argval).is_integer()
    return sorted(found)
