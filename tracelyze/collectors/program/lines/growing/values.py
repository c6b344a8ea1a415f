"""The lines by which a variable or an attribute holds more autograd graphs with every step, found by its values.

At the ends of a few steps the variables of the script's functions that run, and what these hold, are looked at: which
list or dictionary has become longer, and which tensor is computed from the one that was there a step before. Nothing of
it is held meanwhile but numbers. The line is told where the script's text has just one that makes such a value of its
predecessor.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from tracelyze.collectors.internals.local_variables import attributes, borrowed
from tracelyze.collectors.program.call_sites import Sites, is_library, script_frames
from tracelyze.collectors.program.lines.growing import own_values
from tracelyze.collectors.tensors.graphs import following

LOOKS = 3  # steps after which what grows with every step has done so
MOST_LOOKS = 24  # steps after which a container has that grows between bunches of steps, as an agent's memory does
LONG = 10  # entries: a list that a step makes for itself is seldom as long
MAX_FRAMES = 12
MAX_NAMES = 500  # of one function, file or object
MAX_VALUES = 4000  # in one look
MAX_DEEP = 3  # attributes of attributes
MAX_ENTRIES = 16  # of a dictionary or tuple that is looked into
MAX_NODES, MAX_BEHIND = 8000, 500  # of autograd graphs, in one look, and behind one tensor
_PLAIN = (int, float, str, bool, bytes, complex, type(None), type, ModuleType)


class _Name(NamedTuple):
    """A variable (`owner`: the class is None) or an attribute of an object, as far down as an entry of what it is."""

    owner: int
    name: str
    entry: Any


class _Seen(NamedTuple):
    """How long a container was, or the numbers of a tensor's node and of those behind it."""

    length: int
    node: int
    behind: frozenset[int]


class _Look:
    """What is seen at the end of one step, as far as MAX_VALUES and MAX_NODES allow. `counts`: see GrowingValues."""

    def __init__(self, torch: Any, counts: Callable[[Any], int]) -> None:
        self._torch, self._counts = torch, counts
        self.seen: dict[_Name, _Seen] = {}
        self.places: dict[_Name, type | CodeType] = {}  # the class or the function that a name belongs to
        self._values_left, self._nodes_left = MAX_VALUES, MAX_NODES

    def variables(self, code: CodeType, owner: int, values: list[tuple[str, Any]]) -> None:
        """Look at the variables of a function, or of a file, whose number is `owner`."""
        for name, value in values[:MAX_NAMES]:
            self._value(_Name(owner, name, None), code, value, 0)

    def attributes(self, owner: Any, deep: int = 0) -> None:
        """Look at what an object holds, which is an attribute of so many others."""
        for name, value in list(attributes(owner).items())[:MAX_NAMES]:
            if not name.startswith("__"):
                self._value(_Name(id(owner), name, None), type(owner), value, deep)

    def _value(self, name: _Name, place: type | CodeType, value: Any, deep: int) -> None:
        kind = type(value)
        self._values_left -= 1
        if self._values_left < 0 or kind in _PLAIN or name in self.seen:
            return
        if issubclass(kind, self._torch.Tensor):
            if value.grad_fn is not None:
                self._note(name, place, _Seen(0, value.grad_fn._sequence_nr(), self._behind(value.grad_fn)))
        elif kind in (list, deque) or issubclass(kind, dict):
            self._container(name, place, value, deep)
        elif kind is tuple:
            for index, one in enumerate(value[:MAX_ENTRIES]):
                if name.entry is None:
                    self._value(name._replace(entry=index), place, one, deep)
        elif deep < MAX_DEEP and not _of_library(kind):
            self.attributes(value, deep + 1)

    def _container(self, name: _Name, place: type | CodeType, value: Any, deep: int) -> None:
        if len(value) >= LONG:
            last = next(reversed(value.values()), None) if issubclass(type(value), dict) else value[-1]
            if self._counts(last):
                self._note(name, place, _Seen(len(value), 0, frozenset()))
        elif issubclass(type(value), dict) and name.entry is None:
            for key, one in itertools.islice(list(value.items()), MAX_ENTRIES):
                if type(key) in (str, int):
                    self._value(name._replace(entry=key), place, one, deep)

    def _note(self, name: _Name, place: type | CodeType, seen: _Seen) -> None:
        self.seen[name], self.places[name] = seen, place

    def _behind(self, node: Any) -> frozenset[int]:
        """The numbers of the nodes that a node was computed from."""
        found: set[int] = set()
        open_ends = deque([node])
        while open_ends and self._nodes_left > 0 and len(found) < MAX_BEHIND:
            for one in following(open_ends.popleft()):
                if hasattr(one, "_sequence_nr") and (number := one._sequence_nr()) not in found:
                    self._nodes_left -= 1
                    found.add(number)
                    open_ends.append(one)
        return frozenset(found)


class GrowingValues:
    """Records the lines as sites of a role. `counts` says of an entry whether a list of such entries is looked for."""

    def __init__(self, torch: Any, sites: Sites, role: str, counts: Callable[[Any], int]) -> None:
        self._torch, self._sites, self._role, self._counts = torch, sites, role, counts
        self._looks: list[_Look] = []
        self._codes: dict[CodeType, int] = {}  # functions that run, and the line that each is at
        self.done = False

    def look(self, frame: FrameType | None, objects: list[Any]) -> None:
        """At the end of a step. `objects`: such as models, whose attributes are looked at as well."""
        look = _Look(self._torch, self._counts)
        for code, owner, values in _variables(frame, self._codes):
            look.variables(code, owner, values)
        for one in objects:
            look.attributes(one)
        self._looks.append(look)
        if len(self._looks) >= LOOKS and (self._tell() or len(self._looks) == MOST_LOOKS):
            self.done = True
            self._looks, self._codes = [], {}

    def _tell(self) -> bool:
        """Whether anything has grown."""
        told: dict[tuple[str, Any], None] = {}
        for name in self._looks[0].seen:
            found = [look.seen[name] for look in self._looks if name in look.seen]
            if len(found) == len(self._looks) and _have_grown(found):
                told[name.name, self._looks[-1].places[name]] = None
        for own, place in told:
            lines = self._lines(own, place)
            if len(lines) == 1:
                self._sites.at(self._role, *lines[0])
        return bool(told)

    def _lines(self, name: str, place: Any) -> list[tuple[CodeType, int]]:
        """The lines that make such a value of its predecessor: in the functions that run, and in the object's own."""
        codes: dict[CodeType, int | None] = {}
        if isinstance(place, CodeType):
            codes[place] = self._codes.get(place)
            if place.co_name == "<module>":
                codes.update((code, at) for code, at in self._codes.items() if name not in code.co_varnames)
        else:
            methods = [one for kind in place.__mro__ if not _of_library(kind) for one in vars(kind).values()]
            codes = {one.__code__: None for one in methods if hasattr(one, "__code__")}
            codes.update(self._codes)
        attribute = not isinstance(place, CodeType)
        return [(code, line) for code, at in codes.items() for line in own_values.lines(code, name, attribute, at)]


def _variables(
    frame: FrameType | None, codes: dict[CodeType, int]
) -> Iterator[tuple[CodeType, int, list[tuple[str, Any]]]]:
    """The variables of the script's functions that run, each under the number of its function, and of their files."""
    files: set[int] = set()
    for one in script_frames(frame, MAX_FRAMES * 5):
        if len(codes) >= MAX_FRAMES:
            return
        code = one.f_code
        codes[code] = one.f_lineno
        if code.co_name != "<module>":
            with borrowed(one) as variables:
                values = list(variables.items())
            yield code, id(code), values
        elif id(one.f_globals) not in files:
            files.add(id(one.f_globals))
            yield code, id(one.f_globals), list(one.f_globals.items())


def _have_grown(found: list[_Seen]) -> bool:
    """Whether a container became longer twice and never shorter, or a tensor is always computed from the one before."""
    pairs = list(itertools.pairwise(found))
    if all(one.length for one in found):
        longer = sum(later.length > earlier.length for earlier, later in pairs)
        return longer >= LOOKS - 1 and all(later.length >= earlier.length for earlier, later in pairs)
    return not any(one.length for one in found) and all(
        earlier.node != later.node and earlier.node in later.behind for earlier, later in pairs
    )


def _of_library(kind: type) -> bool:
    """Whether none of a class's own functions stands in the script."""
    own = [one for one in type.__getattribute__(kind, "__dict__").values() if hasattr(one, "__code__")]
    return not any(not is_library(one.__code__.co_filename) for one in own)
