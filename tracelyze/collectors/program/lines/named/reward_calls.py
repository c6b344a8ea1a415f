"""Functions that a script takes its rewards of, whatever they are called, by the statements that assign these."""

from __future__ import annotations

from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import by_line, names_of, names_stored

_REWARDS: Final = frozenset({"reward", "rewards", "raw_reward", "raw_rewards"})
_ADDS: Final = frozenset({"append", "extend"})
_FORGETS: Final = ("UNPACK_", "RETURN_", "RAISE_")  # one of several things, as an environment gives; a statement's end


def functions(code: CodeType) -> set[str]:
    """Names that stand in statements which make rewards: `rewards = exact_match(texts)`, `rewards.append(score(text))`.
    Not of those that make them of rewards, which normalise or add up."""
    if _REWARDS.isdisjoint((*code.co_varnames, *code.co_names, *code.co_cellvars)):
        return set()
    found, taken, ended = set[str](), set[str](), 0
    for line, one in by_line(code):
        if ended and line > ended:  # a comprehension stores its variable within a statement
            taken, ended = set(), 0
        stored = names_stored(one)
        if stored or one.opname == "POP_TOP":
            ended = line
            rewards = _REWARDS & taken
            gives = not rewards and len(stored) == 1 and stored[0] in _REWARDS
            if gives or (not stored and rewards and _ADDS & taken):
                found |= taken
        elif one.opname.startswith(_FORGETS):
            taken = set()
        elif isinstance(one.argval, CodeType):
            taken |= {*one.argval.co_names, *one.argval.co_freevars}
        elif one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST":
            taken |= {name for name in names_of(one) if type(name) is str}
    return found - _REWARDS - _ADDS
