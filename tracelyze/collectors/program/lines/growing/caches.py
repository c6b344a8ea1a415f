"""Functions of the script whose results functools keeps without a bound, and which keep more of them all the time.

`@cache` and `@lru_cache(maxsize=None)` hold every argument and every result until the program ends. How many there are,
such a function knows itself, and how often one of them was asked for again. Which of its arguments hardly repeat is
told by what it holds.
"""

from __future__ import annotations

import functools
import gc
import itertools
import linecache
import weakref
from types import CodeType
from typing import Any, NamedTuple

from tracelyze.collectors.internals.local_variables import attributes
from tracelyze.collectors.program.call_sites import Sites, is_library, script_modules

LONG = 10  # results, as of a list that is taken to grow (growing/lists.py)
LAST = 0.1  # share of the steps in which a cache without an end has still grown
MAX_MODULES, MAX_NAMES = 200, 1000  # of the script's own modules, and of one module or class
MAX_KEYS = 2000  # of a cache, which are compared
NEW = 0.9  # share of them in which an argument is another, from which on it hardly repeats
_PLAIN = (int, float, str)  # arguments that are compared: what others do when they are is not known
_CACHED = type(functools.lru_cache(maxsize=None)(len))


class Kept(NamedTuple):
    """A function whose results are kept until the end: `found`, the share of its calls that found theirs; `new`, the
    names of its arguments that hardly repeat; the line of its decorator."""

    code: CodeType
    found: float
    new: tuple[str, ...]
    line: int


class GrowingCaches:
    """Follows how many results they keep, and records those that still keep more at the end as sites of a role."""

    def __init__(self, sites: Sites, role: str) -> None:
        self._sites = sites
        self._role = role
        self._kept = {weakref.ref(cached): (cached.cache_info().currsize, 0) for cached in _without_bound()}

    def look(self, steps: int) -> None:
        """Count once more, behind so many steps."""
        for reference, (before, _) in self._kept.items():
            cached = reference()
            if cached is not None and (now := cached.cache_info().currsize) > before:
                self._kept[reference] = now, steps

    def tell(self, steps: int) -> list[Kept]:
        """At the end, behind so many steps: one that was full earlier has met all there is."""
        self.look(steps)
        told = []
        for reference, (results, grown_at) in self._kept.items():
            cached = reference()
            if cached is not None and results >= LONG and grown_at >= (1 - LAST) * steps:
                code, info = cached.__wrapped__.__code__, cached.cache_info()
                told.append(Kept(code, info.hits / (info.hits + info.misses), _new(cached, code), _decorated_at(code)))
                self._sites.at(self._role, code, told[-1].line)
        return told


def _new(cached: Any, code: CodeType) -> tuple[str, ...]:
    """The names of the arguments that are another in most of what a cache holds."""
    names, size = code.co_varnames[: code.co_argcount], cached.cache_info().currsize
    held = (one for one in gc.get_referents(cached) if type(one) is dict and len(one) == size)
    keys = list(itertools.islice(next(held, ()), MAX_KEYS))
    rows = [key if type(key) is tuple else (key,) for key in keys]
    rows = [row for row in rows if len(row) == len(names)]  # all of them by their places
    if not rows or len(rows) < len(keys):
        return ()
    met = [{row[at] for row in rows if type(row[at]) in _PLAIN} for at in range(len(names))]
    return tuple(name for name, values in zip(names, met, strict=True) if len(values) >= NEW * len(rows))


def _without_bound() -> list[Any]:
    """The cached functions without a bound in the script's modules and in the classes there."""
    found: dict[int, Any] = {}
    for _, module in script_modules()[:MAX_MODULES]:
        for value in _values(module):
            for one in (value, *(_values(value) if isinstance(value, type) else ())):
                if type(one) is _CACHED and _of_script(one) and one.cache_parameters()["maxsize"] is None:
                    found[id(one)] = one
    return list(found.values())


def _of_script(cached: Any) -> bool:
    """Whether a cached function stands in a file of the user's."""
    code = getattr(getattr(cached, "__wrapped__", None), "__code__", None)
    return isinstance(code, CodeType) and not is_library(code.co_filename)


def _values(owner: Any) -> list[Any]:
    held = vars(owner) if isinstance(owner, type) else attributes(owner)
    return list(held.values())[:MAX_NAMES]


def _decorated_at(code: CodeType) -> int:
    """The line of the decorator that caches; the first one of the function where none says so."""
    line = code.co_firstlineno
    while (text := linecache.getline(code.co_filename, line).strip()).startswith("@"):
        if "cache" in text:
            return line
        line += 1
    return code.co_firstlineno
