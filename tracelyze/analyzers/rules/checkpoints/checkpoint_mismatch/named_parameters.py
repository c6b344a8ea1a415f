"""The line that saves what named_parameters() gives, and the same with the whole state of the module."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location


class Saved(NamedTuple):
    """The line that makes a dictionary of parameters by their names, and the edit that takes the whole state."""

    line: Location | None
    code: str
    diff: Diff | None


def saved(process: Process, save: Location | None, else_shown: str) -> Saved:
    """:func:`line`, else the line that saves, with another example."""
    return line(process, save) or Saved(save, else_shown, None)


def line(process: Process, save: Location | None) -> Saved | None:
    """The only one of the script, or of the function that saves; None where several may be what is saved."""
    found: dict[tuple[str, int], tuple[Location, OwnStatement, dict[ast.expr, str]]] = {}
    for one in process.locations("parameters-text"):
        own = own_statement.at(process, one)
        parts = _whole(own) if own is not None else {}
        if own is not None and parts:
            found[one.file_line] = one, own, parts
    beside = {at: one for at, one in found.items() if save is not None and one[0].file_function == save.file_function}
    known = list((beside or found).values())
    if len(known) != 1:
        return None
    place, own, parts = known[0]
    changed = own.parsed.with_parts(parts)
    return Saved(place, own.dedented(changed), own.changed(changed))


def _whole(own: OwnStatement) -> dict[ast.expr, str]:
    """The parts of a statement that make a dictionary of all parameters of a module, each with the state instead."""
    parts: dict[ast.expr, str] = {}
    for node in ast.walk(own.parsed.tree):
        if isinstance(node, ast.Call) and name_of(node.func) == "dict" and len(node.args) == 1 and not node.keywords:
            module = _module(node.args[0])
            parts |= {node: f"{own.parsed.text_of(module)}.state_dict()"} if module is not None else {}
        elif isinstance(node, ast.DictComp) and len(node.generators) == 1 and not node.generators[0].ifs:
            module = _module(node.generators[0].iter)
            state = f"{own.parsed.text_of(module)}.state_dict().items()" if module is not None else ""
            parts |= {node.generators[0].iter: state} if state else {}
    return parts


def _module(node: ast.expr) -> ast.expr | None:
    """What `named_parameters()` is called on."""
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Attribute):
        return None
    return node.func.value if node.func.attr == "named_parameters" else None
