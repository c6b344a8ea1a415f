"""Lines that can make numbers far larger than those they are given: by a product, a power, an exponential."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import TAKES, by_line

POWERS: Final = frozenset({"square", "pow", "float_power", "exp", "exp2", "expm1", "sinh", "cosh", "mul", "prod"}) | {
    *("matmul", "mm", "bmm", "einsum")
}


def powers(code: CodeType) -> list[int]:
    """Lines of a function that multiply, raise to a power, or call what does by its name."""
    found = {
        line
        for line, one in by_line(code)
        if (one.opname == "BINARY_OP" and one.argrepr in ("*", "**", "@", "*=", "**="))
        or (one.opname in TAKES and one.argval in POWERS)
    }
    return sorted(found)
