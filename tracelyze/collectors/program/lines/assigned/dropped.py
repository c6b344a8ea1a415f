"""Lines that compute a value and drop it, so that they change nothing: `labels.masked_fill(mask, -100)` as a statement,
`model.state_dict()["head.weight"] = weight`. Read off bytecode as in `named`.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import METHODS, by_line
from tracelyze.collectors.program.lines.settings.named_arguments import named_arguments

RETURNS: Final = frozenset({
    "masked_fill", "masked_scatter", "index_fill", "where", "clamp", "clamp_min", "clamp_max", "clip", "nan_to_num",
    "lerp", "mul", "div", "sub", "normalize", "squeeze", "unsqueeze", "reshape", "view", "flatten", "detach", "clone",
    "permutation", "randperm", "fillna", "dropna", "fill_nan", "drop_nulls", "astype", "tril", "triu",
})  # fmt: skip
"""Methods and functions of torch, NumPy and pandas that return what they compute and leave what they are given."""
WITH: Final = {"add": "alpha", "shuffle": "seed"}
"""Such as do so where they are given this argument: a set's `add` and Python's `shuffle` change what they belong to."""
_IN_PLACE: Final = frozenset({"out", "inplace", "copy"})
_OWN: Final = frozenset({"self", "cls"})  # a method of the script's own may do anything
_STATES: Final = "state_dict"


def lines(code: CodeType) -> list[tuple[str, int]]:
    """Roles and lines of statements that are a call of one of these, and no more (dropped), and of those that change
    the dictionary which `state_dict()` has just made, and that nothing else holds (dropped-state)."""
    return [("dropped-state" if chain[-1] == "update" else "dropped", line) for line, chain in _statements(code)]


def _statements(code: CodeType) -> list[tuple[int, list[str]]]:
    """Both, each with the names that it takes one from the other."""
    names = set(code.co_names)
    if names.isdisjoint(RETURNS | WITH.keys() | {_STATES}):
        return []
    chains: dict[tuple[int | None, int | None], list[str]] = {}  # by where the expression begins
    found: list[tuple[int, list[str]]] = []
    given = frozenset[str]()
    before: dis.Instruction | None = None
    for _, one in by_line(code):
        if one.positions is None or one.positions.col_offset is None or one.positions.lineno is None:
            continue
        begin = one.positions.lineno, one.positions.col_offset
        given |= set(named_arguments(code, one))
        if one.opname in METHODS:
            chains.setdefault(begin, [""]).append(str(one.argval))  # of a call that begins on another line
        elif one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST":
            chains[begin] = [str(one.argval)]
        elif one.opname == "BINARY_SUBSCR":
            chains.setdefault(begin, []).append("[]")
        elif one.opname == "STORE_SUBSCR" and chains.get(begin, [])[-1:] == [_STATES]:
            found.append((begin[0], ["update"]))
        elif one.opname == "POP_TOP" and before is not None and before.opname.startswith("CALL"):
            chain = chains.get(_begin(before), [])
            if _is_dropped(chain, given):
                found.append((_begin(before)[0] or code.co_firstlineno, chain))
        if before is not None and before.opname.startswith("CALL"):
            given = frozenset()
        before = one
    return found


def _begin(one: dis.Instruction) -> tuple[int | None, int | None]:
    return (one.positions.lineno, one.positions.col_offset) if one.positions is not None else (None, None)


def _is_dropped(chain: list[str], given: frozenset[str]) -> bool:
    """Whether the last call of a line does nothing but return what the line drops. `chain`: `["labels",
    "masked_fill"]`; `given`: what the last call is given by name."""
    if len(chain) < 2 or (len(chain) == 2 and chain[0] in _OWN) or given & _IN_PLACE:
        return False
    last = chain[-1]
    return last in RETURNS or WITH.get(last) in given or (last == "update" and chain[-2] == _STATES)
