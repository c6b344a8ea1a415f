"""Instructions of a function's bytecode: their lines, and the names that they take or store, whatever the version of
Python calls them. All that reads lines off bytecode goes through here.

Not off the text. Up to Python 3.12 `ast.parse` counts the depth of trees once for all threads: a program that parses
while a thread of ours does gets a SystemError (github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Final

METHODS: Final = ("LOAD_METHOD", "LOAD_ATTR")
GLOBALS: Final = ("LOAD_GLOBAL", "LOAD_NAME")
FUNCTIONS: Final = (*METHODS, *GLOBALS)
TAKES: Final = (*FUNCTIONS, "LOAD_DEREF")
LONGEST: Final = 400_000  # bytes of bytecode: a script of some 20,000 lines
KEPT: Final = 20_000  # bytes of bytecode whose instructions are kept, some 5 MB: a function of 1,000 lines
_ON_VARIABLES: Final = re.compile(
    r"(?P<first>(?:LOAD|STORE)_FAST)(?:_BORROW|_CHECK)?(?:_(?P<second>(?:LOAD|STORE)_FAST)(?:_BORROW)?)?"
)
_RENAMED: Final = {"LOAD_SMALL_INT": "LOAD_CONST", "LOAD_SUPER_ATTR": "LOAD_METHOD"}
_STORES: Final = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")


class _Latest:
    """The function that was read last: a dozen readers ask for the same one, each after the other."""

    instructions: tuple[CodeType | None, Sequence[tuple[int, dis.Instruction]]] = (None, ())


def by_line(code: CodeType) -> Iterator[tuple[int, dis.Instruction]]:
    """The instructions of a function, each with its line; none of a function that is longer than LONGEST."""
    latest, known = _Latest.instructions  # one attribute, since several threads may read
    if latest is code:
        return iter(known)
    if len(code.co_code) > KEPT:
        return _disassembled(code)
    known = tuple(_disassembled(code))
    _Latest.instructions = code, known
    return iter(known)


def _disassembled(code: CodeType) -> Iterator[tuple[int, dis.Instruction]]:
    if len(code.co_code) > LONGEST:
        return
    line = code.co_firstlineno
    for one in dis.get_instructions(code):
        line = (one.positions.lineno if one.positions is not None else None) or line
        for single in _as_in_3_11(one):
            yield line, single


def _as_in_3_11(one: dis.Instruction) -> Iterator[dis.Instruction]:
    """An instruction as Python 3.11 has it, so that no reader has to know the names that later versions give.

    Python 3.13 stores and takes two local variables at a time (STORE_FAST_LOAD_FAST), 3.12 and 3.14 say how one is
    taken (LOAD_FAST_CHECK, LOAD_FAST_BORROW). From 3.12 on, `super().method` and, in two versions, the return of a
    constant are one instruction; in 3.14 small integers and subscripts have other ones.
    """
    kinds = _ON_VARIABLES.fullmatch(one.opname)
    if kinds is not None:
        names = one.argval if type(one.argval) is tuple else (one.argval,)
        for opname, name in zip((kinds["first"], kinds["second"]), names, strict=False):
            yield one._replace(opname=opname, argval=name, argrepr=str(name))
    elif one.opname in _RENAMED:
        yield one._replace(opname=_RENAMED[one.opname])
    elif one.opname == "RETURN_CONST":
        yield one._replace(opname="LOAD_CONST")
        yield one._replace(opname="RETURN_VALUE", arg=None, argval=None, argrepr="")
    elif one.opname == "BINARY_OP" and one.argrepr == "[]":
        yield one._replace(opname="BINARY_SUBSCR", argrepr="")
    else:
        yield one


def names_of(one: dis.Instruction) -> tuple[object, ...]:
    """What an instruction names: a constant may be a tuple, of the names of a call's arguments or of keys."""
    return one.argval if type(one.argval) is tuple else (one.argval,)


def names_stored(one: dis.Instruction) -> tuple[str, ...]:
    """The name that an instruction assigns; empty of another instruction."""
    return (one.argval,) if one.opname in _STORES else ()
