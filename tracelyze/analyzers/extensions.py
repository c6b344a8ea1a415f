"""Rules that other packages declare: entry points of the group `tracelyze.rules`.

Each is a `Rule`, or a list of them. One that cannot be used is left out with a note in the report: somebody else's
package must not hide what the catalogue finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import metadata
from typing import Any, Final

from tracelyze.analyzers.kineto.rules import RULES as TRACE_RULES
from tracelyze.analyzers.rule import Rule
from tracelyze.analyzers.rules import RULES

GROUP: Final = "tracelyze.rules"
_ID: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def clear() -> None:
    """Forget what was found: packages have come or gone since."""
    _added.cache_clear()
    rules_of.cache_clear()


def all_rules() -> tuple[Rule, ...]:
    """The catalogue, then the rules of other packages in the order of their entry points' names."""
    return (*RULES, *_added()[0])


@lru_cache(maxsize=8)
def rules_of(ids: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules with these ids, in the order of all rules. Kept, since a thousand processes are judged by the same
    ones."""
    wanted = frozenset(ids)
    return tuple(rule for rule in all_rules() if rule.id in wanted)


def problems() -> tuple[str, ...]:
    """Why rules of other packages were left out, a sentence each."""
    return _added()[1]


@cache
def _added() -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    found: list[Rule] = []
    left_out: list[str] = []
    taken = {rule.id for rule in (*RULES, *TRACE_RULES)}
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        try:
            own = _rules_of(point.load())
        except Exception as error:  # whatever the other package does when it is imported
            left_out.append(f"Rules of {point.value} are left out: {type(error).__name__}: {error}.")
            continue
        for rule in own:
            problem = _problem(rule, taken)
            if problem:
                left_out.append(f"A rule of {point.value} is left out: {problem}.")
            else:
                found.append(rule)
                taken.add(rule.id)
    return tuple(found), tuple(left_out)


def _rules_of(declared: Any) -> list[Any]:
    if isinstance(declared, Rule):
        return [declared]
    if isinstance(declared, Iterable):
        return list(declared)
    raise TypeError("neither a Rule nor a list of rules")


def _problem(rule: Any, taken: set[str]) -> str:
    """Why the rule cannot stand in the catalogue, as a clause; empty if it can."""
    if not isinstance(rule, Rule):
        return f"it is a {type(rule).__name__}, not a Rule"
    if not _ID.fullmatch(rule.id):
        return f"its id {rule.id!r} is not made of lower-case words with hyphens"
    if rule.id in taken:
        return f"another rule is called {rule.id} already"
    return ""
