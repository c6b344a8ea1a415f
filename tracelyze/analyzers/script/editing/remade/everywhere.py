"""Other lines of the script that do the same as one: a fault that training and validation share is mended in both."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SHOWN: Final = 3
_PARTS: Final = (ast.Call, ast.Subscript, ast.Tuple)


def lines(process: Process, place: Location | None) -> list[int]:
    """The numbers of recorded lines in the file of a place, other than it, in which what its statement calls or cuts
    stands with whatever variables."""
    own = own_statement.at(process, place)
    wanted = _longest(own.parsed.tree) if own is not None else None
    if own is None or place is None or wanted is None:
        return []
    ends = own.line + own.text.count("\n")
    found = {
        number
        for number, text in recorded_text.of_file(process, place.file).items()
        if not own.line <= number <= ends and (line := parsed_line.parse(text.strip())) is not None
        if any(_form(node) == wanted for node in ast.walk(line.tree) if isinstance(node, _PARTS))
    }
    return sorted(found)


def said(process: Process, place: Location | None) -> str:
    """A sentence that names these lines; empty where there is none."""
    found = lines(process, place)
    if not found:
        return ""
    several = len(found) > 1
    numbers = listed([str(one) for one in found], most=_SHOWN)
    return (
        f" Line{'s' * several} {numbers} read{'s' * (not several)} alike: change {'them' if several else 'it'} as well."
    )


def _longest(tree: ast.AST) -> str | None:
    """The form of the longest part that says enough: a call that is given what another one returns, or slices."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, _PARTS)]
    telling = [
        node
        for node in nodes
        if any(isinstance(one, ast.Slice) for one in ast.walk(node))
        or (isinstance(node, ast.Call) and any(isinstance(one, ast.Call) for one in ast.walk(node) if one is not node))
    ]
    return _form(max(telling, key=lambda node: len(ast.dump(node)))) if telling else None


def _form(node: ast.AST) -> str:
    """What it does, whatever its variables are called: functions and attributes keep their names."""
    blank = copy.deepcopy(node)
    called = {id(one.func) for one in ast.walk(blank) if isinstance(one, ast.Call)}
    for one in ast.walk(blank):
        if isinstance(one, ast.Name) and id(one) not in called:
            one.id = "_"
    return ast.dump(blank)
