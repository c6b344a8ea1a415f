"""A parameter group without a tensor: its parameters came from an iterator that was gone through before."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.names import names_in
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff

_ITERATORS: Final = ("filter", "map", "chain", "from_iterable", "parameters", "named_parameters", "iter", "zip")
FIX: Final = (
    "Keep the parameters of the group in a list: an iterator is empty once a loop, sum(), list() or len(list()) has "
    "gone through it."
)
EXAMPLE: Final = "params = list(params)  # right below the line that makes them, before anything goes through them"


@dataclass(frozen=True)
class EmptyGroup:
    """What is known of it; `made_at` is the line that makes the iterator, where it is known."""

    said: str
    made_at: Location | None
    example: str
    diff: Diff | None


def of(optimization: Optimization) -> EmptyGroup | None:
    """The first group of the optimizer that holds nothing; None where all hold something, or it is not known."""
    empty = json.loads(optimization.facts.get("empty_groups") or "[]")
    groups = int(optimization.facts.get("groups") or 0)
    if not empty or groups < len(empty):
        return None
    which = f"group {empty[0] + 1} of the {groups} that the optimizer was given" if groups > 1 else "the only group"
    said = (
        f"{which[0].upper()}{which[1:]} holds no tensor: what it was given is an empty list, or an iterator, such as "
        "filter() or a generator, that something else had gone through before the optimizer was made."
    )
    own = _iterator(optimization)
    if own is None or not isinstance(own.parsed.statement, ast.Assign):
        name = _given_to(optimization, empty[0])
        return EmptyGroup(said, None, EXAMPLE.replace("params", name) if name else EXAMPLE, None)
    value = own.parsed.statement.value
    line = own.parsed.with_parts({value: f"list({own.parsed.text_of(value)})"})
    function = optimization.made_at.function if optimization.made_at else ""
    place = Location(own.file, own.line, function, own.text.split("\n")[0])
    return EmptyGroup(f"{said} Line {own.line} makes it.", place, own.dedented(line), own.changed(line))


def _given_to(optimization: Optimization, group: int) -> str:
    """The variable that the line hands to this group; empty where it is none, or not known."""
    made = own_statement.at(optimization.process, optimization.made_at)
    call = made.only_call(str(optimization.facts.get("name"))) if made is not None else None
    given = call.args[0] if call is not None and call.args else None
    if int(optimization.facts.get("groups") or 0) > 1 and not isinstance(given, ast.List):
        return ""  # a variable that holds the groups
    if isinstance(given, ast.List) and group < len(given.elts):
        given = given.elts[group]
        if isinstance(given, ast.Dict):
            pairs = zip(given.keys, given.values, strict=True)
            given = next(
                (value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "params"), None
            )
    return given.id if isinstance(given, ast.Name) else ""


def _iterator(optimization: Optimization) -> OwnStatement | None:
    """The only statement above the one that makes the optimizer which assigns an iterator that is handed to it."""
    process, place = optimization.process, optimization.made_at
    made = own_statement.at(process, place)
    if place is None or made is None:
        return None
    given = names_in(made.parsed.tree)
    lines = recorded_text.around(process, place)
    found = []
    for number, line in lines.items():
        here = place.at(number, line)
        own = own_statement.at(process, here) if number < made.line and line.strip() else None
        if own is not None and own.line == number and _assigns_iterator(own, given):
            found.append(own)
    return found[0] if len(found) == 1 else None


def _assigns_iterator(own: OwnStatement, names: set[str]) -> bool:
    assigned = own.parsed.statement
    if not isinstance(assigned, ast.Assign) or not isinstance(assigned.targets[0], ast.Name):
        return False
    value = assigned.value
    iterates = isinstance(value, ast.GeneratorExp) or (
        isinstance(value, ast.Call) and name_of(value.func) in _ITERATORS
    )
    return iterates and assigned.targets[0].id in names
