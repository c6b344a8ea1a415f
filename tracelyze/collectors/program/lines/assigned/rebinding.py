"""Lines that change a name and leave what it stood for as it was, read off the bytecode: of an optimizer's own step, a
parameter; of other functions, what a loop goes over."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import METHODS, by_line, names_stored

COPIES: Final = frozenset({"reshape", "flatten", "contiguous", "clone", "float", "double", "half", "bfloat16", "to"})
SUMS: Final = frozenset({"sub", "add", "addcdiv", "addcmul", "subtract"})  # of which an underscore writes in place
VIEWS: Final = frozenset({"detach", "view", "view_as", "squeeze", "unsqueeze", "transpose", "permute", "t"})
_IN_HEADS: Final = ("UNPACK_SEQUENCE", "EXTENDED_ARG", "NOP", "CACHE")  # between a FOR_ITER and its variables
_LOCAL_STORES: Final = ("STORE_FAST", "STORE_NAME", "STORE_DEREF")


def rebound(code: CodeType) -> list[int]:
    """Lines that leave the tensor of a `for` as it was: `p = p - update`, `p.sub(update)` as a statement, and
    `p.float().sub_(update)`, which may change a copy. What may be a copy and has a name (`flat = p.reshape(-1)`) counts
    where it is changed and never written back."""
    found: set[int] = set()
    variables = set[str]()  # of loops
    before, owner = "", ""  # the operation before this one, and the name that a method is taken of
    copied = 0  # the latest line that calls what may make a copy
    named: dict[str, int] = {}  # what may be a copy, and the line that gave it this name
    changed: set[int] = set()
    for line, one in by_line(code):
        stored, method = names_stored(one), one.argval if one.opname in METHODS else ""
        in_place = method.endswith("_")
        if before == "FOR_ITER":
            variables.update(stored)
        elif before in ("+", "-") and variables.intersection(stored):
            found.add(line)
        elif before.endswith("=") and stored and stored[0] in named:  # flat -= update
            changed.add(named[stored[0]])
        elif (in_place or one.opname == "STORE_ATTR") and owner in variables:
            named = {}
        elif method in COPIES and owner in variables:
            copied = line
        elif copied == line and (stored or (in_place and before.startswith("CALL"))):
            found = found - {line} if stored else found | {line}
            named |= dict.fromkeys(stored, line) if before.startswith("CALL") else {}
            variables.difference_update(named)  # p = p.float()
        elif copied == line and before.startswith("CALL") and method and method not in VIEWS:
            copied = 0  # p.float().norm() is another tensor
        elif in_place and owner in named:
            changed.add(named[owner])
        before = one.argrepr if one.opname == "BINARY_OP" else one.opname
        owner = owner if method == "data" else str(one.argval)
    return sorted(found | changed.intersection(named.values()) | _dropped(code))


def handed_out(code: CodeType) -> list[int]:
    """Lines of a function beside the step that take `p.reshape(-1)` of what it is given, where its gradient is taken as
    well: the step may change a copy of the parameter."""
    given = code.co_varnames[: code.co_argcount]
    if "grad" not in code.co_names or not given:
        return []
    found: dict[int, None] = {}
    owner = ""
    for line, one in by_line(code):
        method = str(one.argval) if one.opname in METHODS else ""
        if method in ("reshape", "flatten") and owner in given:
            found[line] = None
        owner = owner if method == "data" else str(one.argval)
    return list(found)


def _dropped(code: CodeType) -> set[int]:
    """Lines that begin with the variable of a `for`, call a method of it that returns a sum, and drop that, or give it
    to the variable alone."""
    found: set[int] = set()
    before, variables = "", set[str]()
    begins, methods = dict[int, str](), dict[int, str]()
    for line, one in by_line(code):
        stored = names_stored(one)
        if before == "FOR_ITER":
            variables.update(stored)
        if one.opname.startswith("LOAD_"):
            begins.setdefault(line, str(one.argval))
        if one.opname in METHODS and one.argval != "data":
            methods.setdefault(line, one.argval)
        ends = before.startswith("CALL") and (one.opname == "POP_TOP" or bool(variables.intersection(stored)))
        if ends and begins.get(line) in variables and methods.get(line) in SUMS:
            found.add(line)
        before = one.opname
    return found


def left_alone(code: CodeType) -> list[int]:
    """Lines that give the variable of a `for` another value, `values = []`, that nothing reads: what the loop goes over
    still holds the old one."""
    found: dict[str, list[tuple[int, int]]] = {}  # by name: the place of the instruction, and its line
    variables, read = set[str](), dict[str, int]()
    in_head = False
    for place, (line, one) in enumerate(by_line(code)):
        stored = names_stored(one)
        if one.opname == "FOR_ITER":
            in_head = True
        elif in_head and stored:
            variables.update(stored)
        elif one.opname not in _IN_HEADS:
            in_head = False
            for name in variables.intersection(stored) if one.opname in _LOCAL_STORES else ():
                found.setdefault(name, []).append((place, line))
        if one.opname.startswith("LOAD_") and type(one.argval) is str:
            read[one.argval] = place
    return sorted({line for name, stores in found.items() for at, line in stores if read.get(name, -1) < at})
