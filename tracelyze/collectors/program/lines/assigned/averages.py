"""Lines that mix weights into others, as an average or a target network does, read off bytecode as in `named`."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import METHODS, by_line, names_stored

_WEIGHTS: Final = frozenset({"parameters", "named_parameters", "state_dict", "buffers"})
_MIXES: Final = frozenset({"mul_", "copy_"})


def mixing(code: CodeType) -> list[int]:
    """Lines of a function that mix weights into others, as an average or a target network does. Where lines give the
    variable of a loop the mixture, those alone.

    What reads gradients is the step of an optimizer or a training: there only `copy_(a.lerp(b))` is meant.
    """
    names = set(code.co_names)
    trains = bool(names & {"grad", "backward"})
    if not names & _WEIGHTS or not names & {"zip", "items"} or (trains and not names >= {"lerp", "zip"}):
        return []
    in_place, anew = set[int](), set[int]()
    variables = set[str]()  # of loops
    copied = mixed = 0  # the latest line that calls copy_, and the latest one that multiplies or mixes
    in_head = puts_together = False  # within `for name, value in`; a new state is put together: `state[name] = ...`
    for line, one in by_line(code):
        method = one.argval if one.opname in METHODS else ""
        in_head = one.opname == "FOR_ITER" or (in_head and (one.opname == "UNPACK_SEQUENCE" or bool(names_stored(one))))
        puts_together |= one.opname == "STORE_SUBSCR"
        copied = line if method == "copy_" else copied
        mixes = method in _MIXES and "zip" in names
        if (mixes and not trains) or (trains and one.argval == "lerp" and copied == line):
            in_place.add(line)
        if method in ("mul", "lerp") or (one.opname, one.argrepr) == ("BINARY_OP", "*"):
            mixed = line
        if in_head:
            variables.update(names_stored(one))
        elif mixed == line and variables.intersection(names_stored(one)):
            anew.add(line)
    return sorted(anew if anew and not puts_together and not trains else in_place)
