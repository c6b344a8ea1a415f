"""An Identity that a function makes of an argument which its caller left out: the call, or the default, changes."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.model.linear_stack.activated import Between
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.settings import callers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

_OF_OUTPUT: Final = re.compile(r"out|last|final", re.IGNORECASE)
_OF_ACTIVATION: Final = re.compile(r"act|nonlin", re.IGNORECASE)


def found(process: Process, idle: str) -> Between | None:
    """What to change about it; None where no argument of the function that makes the Identity is known to say it."""
    place = process.module_location(idle)
    own = own_statement.at(process, place)
    if place is None or own is None or not own.is_whole or place.function in ("<module>", "__init__"):
        return None
    made = [
        node.func.id
        for node in ast.walk(own.parsed.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args and not node.keywords
    ]
    made = [one for one in made if _OF_ACTIVATION.search(one)]
    lines = recorded_text.of_function(process, place)
    argument = _argument(lines, made[0]) if len(made) == 1 else ""
    head = callers.signature(process, place)
    if not argument or (head is not None and argument not in head.defaults):
        return None
    calls = callers.of(process, place.function, place.file)
    given = [(one, callers.given(one.call, head.names if head is not None else [])) for one in calls]
    without = [one for one, names in given if names is not None and argument not in names]
    said = f" Line {own.line} makes this of `{made[0]}`" + (f", that is `{argument}`." if made[0] != argument else ".")
    if len(without) == 1 == len(given):
        call = without[0]
        code = call.own.parsed.with_argument(call.call, argument, "nn.Tanh") or ""
        fix = f"Pass an activation as `{argument}` in the call of {place.function} on line {call.own.line}."
        return Between(said, fix, call.place, call.own.dedented(code))
    if head is None or not head.defaults[argument].endswith("Identity"):
        return None
    fix = f"Pass an activation as `{argument}` where {place.function} is called, or make one its default."
    return Between(f"{said} Its default is {head.defaults[argument]}.", fix, head.place, "")


def _argument(lines: Mapping[int, str], name: str) -> str:
    """What the function takes from outside for this name: the name itself where no line gives it a value, else what the
    only line that does takes for layers other than the output's."""
    values = [value for text in lines.values() if (value := _value(text, name)) is not None]
    if not values:
        return name
    value = values[0] if len(values) == 1 else None
    both = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    names = [one.id for one in both if isinstance(one, ast.Name) and not _OF_OUTPUT.search(one.id)]
    if len(names) != 1 or not all(isinstance(one, ast.Name) for one in both):
        return ""
    return names[0] if all(_value(text, names[0]) is None for text in lines.values()) else ""


def _value(text: str, name: str) -> ast.expr | None:
    """What a line assigns to this name."""
    parsed = parsed_line.parse(text.strip())
    said = parsed.statement if parsed is not None else None
    targets = said.targets if isinstance(said, ast.Assign) else []
    named = [one for one in targets if isinstance(one, ast.Name) and one.id == name]
    return said.value if isinstance(said, ast.Assign) and named else None
