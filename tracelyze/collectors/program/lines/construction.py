"""Which line of the script made an optimizer, a scheduler or a module.

It is noted as the object is made, on whatever thread, and becomes a row of the table sites once the object is used.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.program.call_sites import Sites, is_library

MOST = 20_000  # objects of a kind that are remembered: a program may make any number of them


class Place(NamedTuple):
    """A call in the script: the code object, the instruction and the line."""

    code: CodeType
    instruction: int
    line: int


class Constructions:
    """Objects of one kind, held weakly, with the place where each was made."""

    def __init__(self) -> None:
        self._places: ByIdentity[Place] = ByIdentity()

    def note(self, made: Any, frame: FrameType | None) -> None:
        """`made` is being constructed; `frame` called the constructor. The first note of an object stays."""
        places = self._places
        if made in places or len(places) >= MOST:
            return
        place = _place(made, frame)
        if place is not None:
            try:
                places[made] = place
            except TypeError:  # a class without weak references
                return

    def of_kind(self, kind: type) -> list[Any]:
        """The objects of this class that are alive."""
        return [made for made in self._places if isinstance(made, kind)]

    def site_of(self, made: Any, role: str, sites: Sites, running: set[tuple[int, int]] | None = None) -> int | None:
        """The number of the line that made an object, which is used now; None where no line of the script is known to.

        A call that is still under way made it on the program's behalf, as the `fit` of a trainer makes an optimizer.
        The object's settings stand elsewhere, so that line is not given. `running`: what `under_way` answers.
        """
        place = self._places.get(made)
        if place is None or (id(place.code), place.instruction) in (under_way() if running is None else running):
            return None
        return sites.at(role, place.code, place.line)


optimizers = Constructions()  # and schedulers
modules = Constructions()
_library: dict[str, bool] = {}  # by file


def under_way() -> set[tuple[int, int]]:
    """The calls that lead here: code objects, by identity, with the instruction that each is at."""
    frame: FrameType | None = sys._getframe(1)
    found = set()
    while frame is not None:
        found.add((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return found


def _place(made: Any, frame: FrameType | None) -> Place | None:
    """The innermost line of the script, constructors of the object itself aside: those of a script's own subclass."""
    while frame is not None:
        code = frame.f_code
        library = _library.get(code.co_filename)
        if library is None:
            library = _library[code.co_filename] = is_library(code.co_filename)
        if not library and not (code.co_name == "__init__" and code in _constructors(type(made))):
            return Place(code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return None


def _constructors(kind: type) -> list[CodeType]:
    methods = [vars(one).get("__init__") for one in kind.__mro__]
    return [code for method in methods if isinstance(code := getattr(method, "__code__", None), CodeType)]
