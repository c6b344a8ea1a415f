"""Lines that mix weights into others, as an average or a target network does, read off bytecode as in `named`."""

from __future__ import annotations

import linecache
import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import METHODS, TAKES, by_line, names_stored

_WEIGHTS: Final = frozenset({"parameters", "named_parameters", "state_dict", "buffers"})
_MIXES: Final = frozenset({"mul_", "copy_"})
_MAKERS: Final = re.compile(  # what libraries and scripts call a class of averages of weights
    r"(?=.*[a-z]|EMA$)(?:\w*EMA(?:[A-Z_]\w*)?|\w*Ema(?:[A-Z]\w*)?|ExponentialMovingAverage|(?:Stochastic)?WeightAveraging"
    r"|AveragedModel)"
)
_UPDATES: Final = frozenset({"update", "step", "update_parameters", "update_ema"})
_AVERAGES: Final = frozenset({"ema", "swa", "polyak", "shadow"})
_AVERAGED: Final = frozenset({"avg", "average", "averaged"})  # of these parts of a model; others are of a loss
_PARTS: Final = frozenset({"model", "net", "weights", "params", "parameters"})


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


def making(code: CodeType) -> list[int]:
    """Lines of a function that call a class named after averages of weights."""
    names = {name for name in code.co_names if _MAKERS.fullmatch(name)}
    found: dict[int, None] = {}
    for line, one in by_line(code) if names else ():
        if one.opname in TAKES and one.argval in names:
            text = linecache.getline(code.co_filename, line)
            if not text or re.search(rf"\b{one.argval}\s*\(", text):  # no annotation
                found[line] = None
    return list(found)


def updating(code: CodeType) -> list[int]:
    """Lines of a function that update what is named after an average of weights."""
    if not _UPDATES.intersection(code.co_names):
        return []
    found: dict[int, None] = {}
    owner = ""
    for line, one in by_line(code):
        if one.opname in METHODS and one.argval in _UPDATES:
            words = set(owner.lower().split("_"))
            if words & _AVERAGES or (words & _AVERAGED and words & _PARTS):
                found[line] = None
        if one.opname != "CACHE":
            owner = str(one.argval) if one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST" else ""
    return list(found)
