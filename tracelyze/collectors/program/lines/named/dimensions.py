"""Lines of an optimizer's own step that decide by the number of dimensions of a tensor, read off its bytecode."""

from __future__ import annotations

import dis
from types import CodeType

from tracelyze.collectors.program.lines.instructions import METHODS, TAKES, by_line


def decided(code: CodeType) -> list[int]:
    """Lines that compare such a number and go on by it: `if p.ndim != 2: continue`, `if len(p.shape) == 2:`."""
    lengths, counted, found = set[int](), set[int](), set[int]()  # lines
    compared, before = 0, None  # the latest line that compares, and what the instruction before takes
    for line, one in by_line(code):
        called = one.opname.startswith(("PRECALL", "CALL"))
        if one.opname == "COMPARE_OP":
            compared = line
        elif "JUMP" in one.opname and "_IF_" in one.opname and line == compared:
            found |= {line} & counted
        elif _counts(one) or (called and before == "shape" and line in lengths):
            counted.add(line)
        elif one.opname in TAKES and one.argval == "len":
            lengths.add(line)
        before = one.argval if one.opname in METHODS else None
    return sorted(found)


def _counts(one: dis.Instruction) -> bool:
    """`p.ndim`, or `p.dim()`: `self.dim` may be any number. Python 3.12 has one instruction for attributes and methods,
    and tells them apart in its text."""
    is_method = one.opname == "LOAD_METHOD" or "NULL|self" in one.argrepr
    return one.opname in METHODS and (one.argval == "ndim" or (one.argval == "dim" and is_method))
