"""Lines that mix weights into others, as an average or a target network does, read off bytecode as in `script_text`."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import METHODS, by_line, names_stored

_WEIGHTS: Final = frozenset({"parameters", "named_parameters", "state_dict", "buffers"})
_MIXES: Final = frozenset({"mul_", "copy_"})


def mixing(code: CodeType) -> list[int]:
    """Lines of a function that mix weights into others, as an average or a target network does: neither steps of an
    optimizer, which read gradients, nor trainings, but for `copy_(a.lerp(b))` there. Those that give a loop's variable
    the mixture, where there are."""
    names, copied = set(code.co_names), 0
    trains = bool(names & {"grad", "backward"})
    if not names & {"zip", "items"} or (trains and not names >= {"lerp", "zip"}):
        return []
    found, anew, variables = set[int](), set[int](), set[str]()
    begins, mixed, kept = False, 0, not names & _WEIGHTS
    for line, one in by_line(code):
        begins = one.opname == "FOR_ITER" or (begins and (one.opname == "UNPACK_SEQUENCE" or bool(names_stored(one))))
        kept |= one.opname == "STORE_SUBSCR"  # a new state is put together
        copied = line if one.opname in METHODS and one.argval == "copy_" else copied
        mixes = one.opname in METHODS and one.argval in _MIXES and "zip" in names
        if (mixes and not trains) or (trains and one.argval == "lerp" and copied == line):
            found.add(line)
        if (one.opname in METHODS and one.argval in ("mul", "lerp")) or (one.opname, one.argrepr) == ("BINARY_OP", "*"):
            mixed = line
        if begins:
            variables.update(names_stored(one))
        elif mixed == line and variables.intersection(names_stored(one)):
            anew.add(line)
    return [] if not names & _WEIGHTS else sorted(anew if anew and not kept and not trains else found)
