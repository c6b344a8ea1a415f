"""Arrays that a function of the script puts into a drawn order, one at a call: `x, y = shuffled(x), shuffled(y)`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.settings import callers

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.analyzers.script.settings.callers import Called
    from tracelyze.diagnosis import Diff, Location

_DRAWS: Final = ("permutation", "randperm")
_SEEDS: Final = re.compile(r"seed|RandomState|default_rng|Random\(|set_state|set_rng_state|\bfork_rng\b|\bGenerator\(")


@dataclass(frozen=True)
class ByHelper:
    """One call of such a function, of `named`. `beside`: what else it is given; `order`: how one order is drawn for
    what is named; `own`: the statement of the call."""

    place: Location
    named: str
    function: str
    beside: str
    order: str
    own: OwnStatement


@dataclass(frozen=True)
class _Helper:
    """A function that hands back its first argument in an order that it draws."""

    name: str
    argument: str
    draws: str
    parameters: list[str]


def of(process: Process) -> list[ByHelper]:
    """All recorded calls of such functions, each with what it puts into another order."""
    found: list[ByHelper] = []
    for place in {one.file_line: one for one in process.locations("split")}.values():
        helper = _helper(process, place)
        calls = callers.of(process, helper.name, place.file) if helper is not None else []
        found += [one for call in calls if helper is not None and (one := _call(helper, call)) is not None]
    return found


def in_one_statement(first: ByHelper, second: ByHelper) -> Diff | None:
    """The assignment of both, with one order for the two."""
    own = first.own
    statement = own.parsed.statement
    if own.line != second.own.line or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return None
    calls = [one for one in value.elts if isinstance(one, ast.Call) and parsed_line.name_of(one.func) == first.function]
    if len(calls) != 2 or len(value.elts) != 2 or len(target.elts) != 2:
        return None
    names = own.parsed.text_of(target).strip("()")
    both = f"{names} = {first.named}[order], {second.named}[order]"
    return own.changed(f"order = {first.order}\n{own.indent}{both}")


def _helper(process: Process, place: Location) -> _Helper | None:
    """The function that a line which draws an order belongs to, where it does nothing else and seeds nothing."""
    own = own_statement.at(process, place)
    head = callers.signature(process, place) if own is not None and place.function != "<module>" else None
    if own is None or head is None or not head.names:
        return None
    lines = recorded_text.of_function(process, place)
    if any(_SEEDS.search(text) for at, text in lines.items() if at > head.place.line):
        return None
    argument, statement = head.names[0], own.parsed.statement
    drawn = None
    if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Subscript):
        drawn = statement.value.slice if ast.unparse(statement.value.value) == argument else None
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        returned = f"return {argument}[{statement.targets[0].id}]"
        below = [text.strip() for at, text in lines.items() if at > place.line]
        drawn = statement.value if returned in below else None
    if drawn is None or not _is_draw(drawn):
        return None
    return _Helper(place.function, argument, own.parsed.text_of(drawn), head.names)


def _is_draw(node: ast.expr) -> bool:
    """A call of a generator that goes on from one call to the next, as its name says: one made here begins anew."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _DRAWS:
        return False
    given = [one.value for one in node.keywords if one.arg == "generator"]
    return all(isinstance(one, ast.Name | ast.Attribute) for one in (node.func.value, *given))


def _call(helper: _Helper, called: Called) -> ByHelper | None:
    """A call that is given an array by its name, and else only names."""
    call = called.call
    given = dict(zip(helper.parameters, call.args, strict=False)) | {one.arg or "": one.value for one in call.keywords}
    if not all(isinstance(one, ast.Name | ast.Attribute) for one in given.values()) or helper.argument not in given:
        return None
    named = ast.unparse(given.pop(helper.argument))
    values = {helper.argument: named} | {name: ast.unparse(one) for name, one in given.items()}
    parameter = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, values))})(?![\w=])")
    order = parameter.sub(lambda found: values[found[0]], helper.draws)
    beside = ", ".join(f"{name}={ast.unparse(value)}" for name, value in sorted(given.items()))
    return ByHelper(called.place, named, helper.name, beside, order, called.own)
