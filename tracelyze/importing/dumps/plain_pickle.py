"""Pickles of plain containers, read so that nothing in them can run: no class, no function, no callback is ever built.

A pickle is a program. Those that PyTorch writes about memory and collectives hold numbers, text, lists, tuples and
dictionaries alone; every instruction that could do more is refused before the first one is carried out.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

from tracelyze import reading
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import size

LARGEST = 2**30  # bytes: a snapshot of 100,000 allocations has 50 MB
_PLAIN = frozenset(
    "PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES "
    "EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS "
    "PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET MEMOIZE".split()
)


class _Containers(pickle.Unpickler):
    """Builds what the standard instructions build, and nothing by name."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002  # pickle calls it with what is referred to
        raise pickle.UnpicklingError("refers to something outside of the file")


def load(file: Path) -> Any:
    """What the pickle holds. InputError if it is too large, damaged, or would build anything but plain containers."""
    try:
        if file.stat().st_size > LARGEST:
            raise InputError(Cause.TOO_LARGE, f"{file}: larger than {size(LARGEST)}; dump fewer entries (max_entries)")
        data = reading.read_start(file, LARGEST)
    except OSError as error:
        raise InputError(Cause.of_reading(error), f"{file}: {error.strerror}; give the path of a dump") from None
    return loads(file, data)


def loads(file: Path, data: bytes) -> Any:
    """What a pickle holds whose bytes were read from `file`; InputError as in `load`, except for its size."""
    try:
        _check(data)
        return _Containers(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(
            Cause.UNSAFE_PICKLE, f"{file}: a pickle that is damaged or holds more than plain data ({why})"
        ) from None
    except (MemoryError, RecursionError, OverflowError):
        raise InputError(Cause.IMPLAUSIBLE, f"{file}: a pickle that unpacks to more than this machine holds") from None


def _check(data: bytes) -> None:
    """UnpicklingError for an instruction that is not plain, and for a memo index beyond what was stored."""
    for count, (instruction, argument, _position) in enumerate(pickletools.genops(data)):
        if instruction.name not in _PLAIN:
            raise pickle.UnpicklingError(f"instruction {instruction.name}")
        if instruction.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise pickle.UnpicklingError("a memo index beyond the file's")


def looks_so(head: bytes) -> bool:
    """Whether a file begins as a pickle of protocol 2 to 5 that holds a dictionary does."""
    return head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and b"}" in head[2:16]
