"""Which line of the script made an optimizer, a scheduler or another object of the program.

It is noted as the object is made, on whatever thread, and becomes a row of the table sites once the object is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.program.call_sites import Sites, is_library

MOST = 20_000  # objects that are remembered: a program may make any number of them


class Place(NamedTuple):
    """A call in the script: the code object, the instruction and the line."""

    code: CodeType
    instruction: int
    line: int


_made: ByIdentity[Place] = ByIdentity()
_library: dict[str, bool] = {}  # by file


def note(made: Any, frame: FrameType | None) -> None:
    """`made` is being constructed; `frame` called the constructor. The first note of an object stays."""
    if made in _made or len(_made) >= MOST:
        return
    place = _place(made, frame)
    if place is not None:
        _made[made] = place


def site_of(made: Any, role: str, sites: Sites) -> int | None:
    """The number of the line that made an object, which is used now; None where no line of the script is known to.

    A call that is still under way made it on the program's behalf, as the `fit` of a trainer makes an optimizer. The
    object's settings stand elsewhere, so that line is not given.
    """
    place = _made.get(made)
    if place is None or any(one == place[:2] for one in _under_way(sys._getframe(1))):
        return None
    return sites.at(role, place.code, place.line)


def _place(made: Any, frame: FrameType | None) -> Place | None:
    """The innermost line of the script, constructors of the object itself aside: those of a script's own subclass."""
    own = _constructors(type(made))
    while frame is not None:
        code = frame.f_code
        library = _library.get(code.co_filename)
        if library is None:
            library = _library[code.co_filename] = is_library(code.co_filename)
        if not library and not (code.co_name == "__init__" and code in own):
            return Place(code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return None


def _constructors(kind: type) -> list[CodeType]:
    methods = [vars(one).get("__init__") for one in kind.__mro__]
    return [code for method in methods if isinstance(code := getattr(method, "__code__", None), CodeType)]


def _under_way(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lasti
        frame = frame.f_back
