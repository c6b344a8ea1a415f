"""Groups of an optimizer that take in the parameters with certain names, as those of adapters, and no others."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

_TAKES: Final = re.compile(
    r"(?P<p>\w+) for (?P<n>\w+), (?P=p) in (?P<model>[\w.]+)\.named_parameters\(\)"
    r"""\s+if (?P<q>["'])(?P<part>[^"']+)(?P=q) in (?P=n)\s*[\])]"""
)
_REST: Final = (
    "rest = [p for n, p in {model}.named_parameters()\n"
    "        if p.requires_grad and not any(one in n for one in ({given}))]\n"
    '# among the groups that {function} returns, with a rate of its own: {{"params": rest}}'
)
_MOST: Final = 4  # names that a sentence can bear


class Taken(NamedTuple):
    """What the groups take in, what to do, an example, and the line."""

    said: str
    fix: str
    code: str
    place: Location


def of(optimization: Optimization, names: Sequence[str]) -> Taken | None:
    """Where the function that makes the groups takes all parameters by what their names contain, and none of these
    names does."""
    process, made = optimization.process, optimization.made_at
    own = own_statement.at(process, made) or own_statement.begun_at(process, made)
    if made is None or own is None or not names:
        return None
    called = {parsed_line.name_of(one.func) for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Call)}
    lines = [one for one in process.locations("parameters-text") if one.file == made.file]
    lines = [one for one in lines if one.function in called and one.function != made.function]
    lines = sorted({one.file_line: one for one in lines}.values(), key=lambda one: one.line)
    found = [list(_TAKES.finditer(code_of(one.source))) for one in lines]
    if not lines or len({one.function for one in lines}) > 1 or any(len(one) != 1 for one in found):
        return None
    parts = list(dict.fromkeys(one[0]["part"] for one in found))
    models = {one[0]["model"] for one in found}
    if len(models) > 1 or any(part in name for part in parts for name in names):
        return None
    function, where = (
        lines[0].function,
        f"line{'s' * (len(lines) > 1)} {listed([str(one.line) for one in lines], most=_MOST)}",
    )
    shown = listed([f'"{one}"' for one in parts], most=_MOST)
    given = ", ".join(f'"{one}"' for one in parts) + "," * (len(parts) == 1)
    return Taken(
        f"{function} ({where}) takes parameters whose names contain {shown}, and line {made.line} gives the optimizer "
        "what it returns: no group takes in the others.",
        f"Have {function} return one more group, of the other trainable parameters. Set requires_grad_(False) on "
        "parameters that should stay fixed, which also saves computing their gradients.",
        _REST.format(model=models.pop(), given=given, function=function),
        _returned(process, lines[-1]),
    )


def _returned(process: Process, last: Location) -> Location:
    """The line that returns the groups, where it was recorded; else the last that takes parameters."""
    lines = recorded_text.of_function(process, last)
    returns = [at for at, text in lines.items() if at > last.line and text.strip().startswith("return ")]
    return last.at(returns[0], lines[returns[0]]) if len(returns) == 1 else last
