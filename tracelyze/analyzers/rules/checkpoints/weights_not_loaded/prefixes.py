"""Names of weights that differ by what they begin with: in words, and the line that makes them the model's."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


def said(given: str, expected: str, names: str = "Its names") -> str:
    """A sentence. `given`, `expected`: what the names of the weights and those of the model begin with."""
    if given and not expected:
        return f"{names} begin with {given!r}, which the model's names do not."
    if expected and not given:
        return f"The model's names begin with {expected!r}, which these do not."
    return f"What it calls {given + '*'!r} the model calls {expected + '*'!r}."


def renamed(given: str, expected: str, state: str, some: bool) -> str:
    """The line that renames the weights, which the script calls `state`. `some`: others are to be left out."""
    name = f'name.removeprefix("{given}")' if given else "name"
    name = f'"{expected}" + {name}' if expected else name
    chosen = f' if name.startswith("{given}")' if some and given else ""
    return f"{state} = {{{name}: tensor for name, tensor in {state}.items(){chosen}}}"


class Handed(NamedTuple):
    """What the script's line calls the model that takes the weights in, and the weights; `made`: the line that gives
    them a name, where the script hands over an expression."""

    model: str
    state: str
    made: str


def handed_over(process: Process, place: Location | None) -> Handed:
    """The names in the line that calls load_state_dict; the usual ones where it is not known."""
    own = own_statement.at(process, place)
    call = own.only_call("load_state_dict") if own is not None else None
    if own is None or call is None or not isinstance(call.func, ast.Attribute) or not call.args:
        return Handed("model", "state", "")
    model, given = own.parsed.operand(call.func.value), call.args[0]
    if isinstance(given, ast.Name):
        return Handed(model, given.id, "")
    if isinstance(given, ast.Starred):
        return Handed(model, "state", "")
    return Handed(model, "state", f"state = {own.dedented(own.parsed.text_of(given))}\n")
