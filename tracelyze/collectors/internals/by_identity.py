"""Weak mappings and sets of the program's objects that never ask the objects whether they are equal, nor for a hash.

Those of the standard library call `__eq__` and `__hash__`, which a class may have for a purpose of its own: to return a
tensor, to raise, or to need attributes that are not there yet.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping, MutableSet
from typing import Any, TypeVar

V = TypeVar("V")


class ByIdentity(MutableMapping[Any, V]):
    """A mapping from objects, held weakly. An entry goes with its object."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], V]] = {}

    def __getitem__(self, key: Any) -> V:
        return self._entries[id(key)][1]

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of an object; `default` without one."""
        entry = self._entries.get(id(key))
        return default if entry is None else entry[1]

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries

    def __setitem__(self, key: Any, value: V) -> None:
        number, entries = id(key), self._entries
        known = entries.get(number)

        def ended(ref: Any) -> None:
            entry = entries.get(number)
            if entry is not None and entry[0] is ref:  # else another object lies at its address by now
                del entries[number]

        entries[number] = weakref.ref(key, ended) if known is None else known[0], value

    def __delitem__(self, key: Any) -> None:
        del self._entries[id(key)]

    def __iter__(self) -> Iterator[Any]:
        for ref, _ in list(self._entries.values()):
            key = ref()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self._entries)


class SetByIdentity(MutableSet[Any]):
    """A set of objects, held weakly."""

    def __init__(self) -> None:
        self._members: ByIdentity[None] = ByIdentity()

    def __contains__(self, value: object) -> bool:
        return value in self._members

    def add(self, value: Any) -> None:
        """Nothing happens if it is there."""
        if value not in self._members:
            self._members[value] = None

    def discard(self, value: Any) -> None:
        """Nothing happens if it is not there."""
        self._members.pop(value, None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)
