"""The lines that append to a list which grows from step to step, as they run: noted for a few backwards."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines.noted_calls import NotedCalls, in_script

BACKWARDS = 3  # after which a list that grows with every step has done so
MOST_BACKWARDS = 24  # after which one has that grows between bunches of steps, as an agent's memory does
LONG = 10  # entries: a list that a step makes for itself is seldom as long, and does not grow from step to step
FILLS = "fills"  # the role of a line that appends to a deque of bounded length, where others are of the role "grows"
WITHIN = 2  # what `counts` says of an entry that holds what is looked for, and is none itself
HOLDS = (list, tuple, dict, set)
MAX_FILLED = 4000  # lists that a step fills for itself, whose lines are kept in mind
MAX_INSIDE = 3  # levels of an entry that are looked into for such a list
MAX_BETWEEN = 3  # frames of a library between the script and the append: of a meter, not of a trainer


class _Filled(NamedTuple):
    """Which line put a tensor into a list, as which entry, and the number of the tensor's node in its graph."""

    code: CodeType
    line: int
    place: int
    node: int


class GrowingLists:
    """Records the lines as sites of a role. `counts` says of an entry whether a list of such entries is looked for.
    Lines that append WITHIN are of the role `keeps-parts` as well, where the role is `keeps`, and those that filled the
    lists within with what is looked for of the role `keeps-inside`."""

    def __init__(self, sites: Sites, role: str, counts: Callable[[Any], int]) -> None:
        self._sites = sites
        self._role = role
        self._counts = counts
        self._calls = NotedCalls(self._seen)
        self._backwards = 0
        self._appends: dict[tuple[int, CodeType, int], list[tuple[int, int]]] = {}
        self._within: set[tuple[int, CodeType, int]] = set()
        self._bounded: set[tuple[int, CodeType, int]] = set()
        self._filled: dict[int, _Filled] = {}
        self._inside: dict[tuple[int, CodeType, int], set[tuple[CodeType, int]]] = {}

    def begin(self) -> bool:
        """Whether appends are noted from here on; not where somebody else profiles the program."""
        return self._calls.begin()

    def check(self) -> None:
        """Raise what went wrong meanwhile."""
        if self._calls.error is not None:
            raise self._calls.error

    def _seen(self, frame: FrameType, given: Any) -> bool:
        """Note an append; whether enough was seen."""
        name = getattr(given, "__name__", "")
        if name == "run_backward":
            self._backwards += 1
            return self._backwards > BACKWARDS and (self._tell() or self._backwards > MOST_BACKWARDS)
        elif name == "append":
            grown: Any = getattr(given, "__self__", None)
            counted = self._counts(grown[-1]) if type(grown) in (list, deque) and len(grown) >= LONG else 0
            if type(grown) is list and self._role == "keeps":
                self._note_filled(frame, grown)
            if counted:
                place = in_script(frame, within=MAX_BETWEEN)
                if place is not None:
                    key = id(grown), place.f_code, place.f_lineno  # An id may be another list's later: lengths tell.
                    self._appends.setdefault(key, []).append((self._backwards, len(grown)))
                    if counted == WITHIN:
                        self._within.add(key)
                        self._inside.setdefault(key, set()).update(self._fillers(grown[-1]))
                    if type(grown) is deque and grown.maxlen is not None:
                        self._bounded.add(key)
        return False

    def _tell(self) -> bool:
        """Whether there is such a line."""
        told = False
        for key, lengths in self._appends.items():
            _, code, line = key
            grows = all(later > earlier for (_, earlier), (_, later) in itertools.pairwise(lengths))
            if grows and lengths[0][0] < lengths[-1][0]:
                told = True
                self._sites.at(FILLS if self._role == "grows" and key in self._bounded else self._role, code, line)
                if key in self._within:
                    self._sites.at(f"{self._role}-parts", code, line)
                for inside, there in self._inside.get(key, ()):
                    self._sites.at(f"{self._role}-inside", inside, there)
        return told

    def _note_filled(self, frame: FrameType, grown: list[Any]) -> None:
        """Keep in mind which line put a tensor with a graph into this list, as seen when the next one is put there."""
        last = grown[-1] if grown else None
        if last is None or type(last) in HOLDS or id(grown) in self._filled or len(self._filled) >= MAX_FILLED:
            return
        place = in_script(frame, within=MAX_BETWEEN) if self._counts(last) == 1 else None
        if place is not None:
            number = last.grad_fn._sequence_nr()
            self._filled[id(grown)] = _Filled(place.f_code, place.f_lineno, len(grown) - 1, number)

    def _fillers(self, entry: Any) -> Iterator[tuple[CodeType, int]]:
        """The lines that filled lists within this entry; an id may have been that of another list."""
        parts = [(entry, 0)]
        for one, depth in parts:
            filled = self._filled.get(id(one)) if type(one) is list else None
            if filled is not None:
                held: Any = one[filled.place] if filled.place < len(one) else None
                if self._counts(held) == 1 and held.grad_fn._sequence_nr() == filled.node:
                    yield filled.code, filled.line
                else:
                    del self._filled[id(one)]
            elif depth < MAX_INSIDE and len(parts) < MAX_FILLED:
                several = one.values() if type(one) is dict else one if type(one) in (list, tuple) else ()
                parts += [(part, depth + 1) for part in list(several)]
