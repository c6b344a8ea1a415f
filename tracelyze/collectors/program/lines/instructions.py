"""Names that an instruction of the bytecode stores or takes, whatever the version of Python calls it."""

from __future__ import annotations

import dis
from typing import Final

_STORES: Final = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")


def names_stored(one: dis.Instruction) -> tuple[str, ...]:
    """The names that an instruction assigns. Python 3.13 stores and takes local names two at a time."""
    if one.opname == "STORE_FAST_LOAD_FAST":
        return (one.argval[0],)
    both = one.opname == "STORE_FAST_STORE_FAST"
    return tuple(one.argval) if both else (one.argval,) if one.opname in _STORES else ()


def name_taken(one: dis.Instruction) -> str:
    """The name that an instruction takes, the last one of two."""
    return str(one.argval[-1] if one.opname.startswith("LOAD_FAST") and type(one.argval) is tuple else one.argval)
